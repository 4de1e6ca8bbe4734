package redfish

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An Error is the answer to a request that failed, with a message of the Base registry (DSP8011).
type Error struct {
	Status     int
	ID         string   // in the registry, such as PropertyUnknown
	Args       []string // of the registry's message
	Message    string   // replaces the registry's, to say more
	Resolution string   // what to do; empty: the registry's
	RetryAfter time.Duration
}

// registry is the version of the Base registry whose messages are used.
const registry = "Base.1.16."

// messages are the messages that are used here; %1 is the first of Args.
var messages = map[string]struct{ text, severity, resolution string }{
	"GeneralError":                    {"A general error has occurred. See Resolution for information on how to resolve the error.", "Critical", "None."},
	"InternalError":                   {"The request failed due to an internal service error. The service is still operational.", "Critical", "Resubmit the request. If the problem persists, read the log of bootlab."},
	"MalformedJSON":                   {"The request body submitted was malformed JSON and could not be parsed by the receiving service.", "Critical", "Ensure that the request body is valid JSON and resubmit the request."},
	"NoValidSession":                  {"There is no valid session established with the implementation.", "Critical", "Establish a session before attempting any operations."},
	"InsufficientPrivilege":           {"There are insufficient privileges for the account or credentials associated with the current session to perform the requested operation.", "Critical", "Use an account with a higher role."},
	"OperationNotAllowed":             {"The HTTP method is not allowed on this resource.", "Critical", "None."},
	"ResourceMissingAtURI":            {"The resource at the URI '%1' was not found.", "Critical", "Place a valid resource at the URI or correct the URI and resubmit the request."},
	"PreconditionFailed":              {"The ETag supplied did not match the ETag required to change this resource.", "Critical", "Try the operation again using the appropriate ETag."},
	"PropertyUnknown":                 {"The property '%1' is not in the list of valid properties for the resource.", "Warning", "Remove the unknown property from the request body and resubmit the request."},
	"PropertyNotWritable":             {"The property '%1' is a read-only property and cannot be assigned a value.", "Warning", "Remove the property from the request body and resubmit the request."},
	"PropertyValueNotInList":          {"The value '%1' for the property '%2' is not in the list of acceptable values.", "Warning", "Choose a value from the enumeration list and resubmit the request."},
	"PropertyValueTypeError":          {"The value '%1' for the property '%2' is of a different type than the property can accept.", "Warning", "Correct the value and resubmit the request."},
	"PropertyValueFormatError":        {"The value '%1' for the property '%2' is not a format that the property can accept.", "Warning", "Correct the value and resubmit the request."},
	"ActionParameterMissing":          {"The action '%1' requires that the parameter '%2' be present in the request body.", "Critical", "Supply the required parameter and resubmit the request."},
	"ActionParameterUnknown":          {"The action '%1' was submitted with the invalid parameter '%2'.", "Warning", "Correct the invalid parameter and resubmit the request."},
	"ActionParameterValueNotInList":   {"The value '%1' for the parameter '%2' in the action '%3' is not in the list of acceptable values.", "Warning", "Choose a value from the enumeration list and resubmit the request."},
	"ActionParameterValueTypeError":   {"The value '%1' for the parameter '%2' in the action '%3' is of a different type than the parameter can accept.", "Warning", "Correct the value and resubmit the request."},
	"ActionParameterValueFormatError": {"The value '%1' for the parameter '%2' in the action '%3' is of a different format than the parameter can accept.", "Warning", "Correct the value and resubmit the request."},
	"ServiceTemporarilyUnavailable":   {"The service is temporarily unavailable. Retry in %1 seconds.", "Critical", "Wait for the indicated retry duration and retry the operation."},
	"SessionLimitExceeded":            {"The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation.", "Critical", "Reduce the number of other sessions."},
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	text := messages[e.ID].text
	for i, arg := range e.Args {
		text = strings.ReplaceAll(text, fmt.Sprintf("%%%d", i+1), arg)
	}
	return text
}

// body returns the JSON of an error (DSP0266 section 8.6).
func (e *Error) body() object {
	m, ok := messages[e.ID]
	if !ok {
		panic("redfish: no message " + e.ID)
	}
	resolution := m.resolution
	if e.Resolution != "" {
		resolution = e.Resolution
	}
	return object{"error": object{"code": registry + e.ID, "message": e.Error(), "@Message.ExtendedInfo": []object{{
		"@odata.type": "#Message.v1_1_2.Message", "MessageId": registry + e.ID, "Message": e.Error(), "MessageArgs": append([]string{}, e.Args...),
		"Severity": m.severity, "MessageSeverity": m.severity, "Resolution": resolution,
	}}}}
}

// ErrBusy is wrapped by the error of a machine on which another operation is in progress: the client should try again soon.
var ErrBusy = errors.New("another operation is in progress")

// ErrDown is wrapped by the error of a machine whose hypervisor does not answer.
var ErrDown = errors.New("the hypervisor does not answer")

// retryAfter is when a client should try again.
const retryAfter = 5 * time.Second

// asError returns the answer to an error.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrBusy), errors.Is(err, ErrDown):
		return &Error{Status: http.StatusServiceUnavailable, ID: "ServiceTemporarilyUnavailable", Args: []string{"5"}, Message: err.Error(), RetryAfter: retryAfter}
	}
	return &Error{Status: http.StatusConflict, ID: "GeneralError", Message: err.Error(), Resolution: "Resolve what the message says, and resubmit the request."}
}

func errNotFound(path string) *Error {
	return &Error{Status: http.StatusNotFound, ID: "ResourceMissingAtURI", Args: []string{path}}
}
