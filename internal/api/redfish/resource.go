package redfish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// An answer is a response, and who sent its request.
type answer struct {
	http.ResponseWriter
	status int
	user   string // empty: not logged in
	role   lab.RedfishRole
	after  context.Context // of what goes on after the answer: ends with the service
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// fail answers with an error, unless the answer has begun.
func (a *answer) fail(err error) {
	if a.status != 0 {
		return
	}
	e := asError(err)
	h := a.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="Redfish"`)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(e.RetryAfter/time.Second)))
	}
	a.WriteHeader(e.Status)
	_ = json.NewEncoder(a).Encode(e.body()) // an error is a client that went away
}

// created answers with a resource that was made.
func (a *answer) created(o object) {
	body, tag := o.encode()
	h := a.Header()
	h.Set("ETag", tag)
	h.Set("Content-Type", "application/json; charset=utf-8")
	a.WriteHeader(http.StatusCreated)
	_, _ = a.Write(body)
}

// A resource is what a path has: a function for each method; nil: the method is not allowed.
type resource struct {
	get    func(*http.Request) (object, error)
	patch  func(*http.Request, object) error
	post   func(*answer, *http.Request) error
	delete func(*answer, *http.Request) error
	needs  lab.RedfishRole // for anything but get; empty: RedfishOperator
}

// An object is the JSON of a resource.
type object map[string]any

// ServeHTTP implements http.Handler. w is an *answer.
func (res resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := w.(*answer)
	if !ok {
		panic("redfish: a resource is not served by its Service")
	}
	if err := res.serve(a, r); err != nil {
		a.fail(err)
	}
}

func (res resource) serve(a *answer, r *http.Request) error {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reads && res.get != nil:
		return res.read(a, r)
	case r.Method == http.MethodPatch && res.patch != nil, r.Method == http.MethodPost && res.post != nil, r.Method == http.MethodDelete && res.delete != nil:
	default:
		a.Header().Set("Allow", res.allow())
		return &Error{Status: http.StatusMethodNotAllowed, ID: "OperationNotAllowed"}
	}
	if a.user != "" && !a.role.AtLeast(cmp.Or(res.needs, lab.RedfishOperator)) {
		return &Error{Status: http.StatusForbidden, ID: "InsufficientPrivilege"}
	}
	switch r.Method {
	case http.MethodPost:
		return res.post(a, r)
	case http.MethodDelete:
		return res.delete(a, r)
	}
	return res.change(a, r)
}

func (res resource) allow() string {
	var methods []string
	for _, m := range []struct {
		name string
		has  bool
	}{{"GET", res.get != nil}, {"HEAD", res.get != nil}, {"PATCH", res.patch != nil}, {"POST", res.post != nil}, {"DELETE", res.delete != nil}} {
		if m.has {
			methods = append(methods, m.name)
		}
	}
	return strings.Join(methods, ", ")
}

func (res resource) read(a *answer, r *http.Request) error {
	o, err := res.get(r)
	if err != nil {
		return err
	}
	body, tag := o.encode()
	h := a.Header()
	h.Set("ETag", tag)
	h.Set("Allow", res.allow())
	if match := r.Header.Get("If-None-Match"); match != "" && sameTag(match, tag) {
		a.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	a.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = a.Write(body) // an error is a client that went away
	}
	return nil
}

// change applies a PATCH, and answers with the resource as it is then.
func (res resource) change(a *answer, r *http.Request) error {
	before, err := res.get(r)
	if err != nil {
		return err
	}
	if match := r.Header.Get("If-Match"); match != "" {
		if _, tag := before.encode(); !sameTag(match, tag) {
			return &Error{Status: http.StatusPreconditionFailed, ID: "PreconditionFailed"}
		}
	}
	changes, err := readObject(r)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return &Error{Status: http.StatusBadRequest, ID: "MalformedJSON", Message: "the request changes nothing: its body is empty"}
	}
	if err := res.patch(r, changes); err != nil {
		return err
	}
	return res.read(a, r)
}

// encode returns the JSON of an object, and its ETag, which is a property too.
func (o object) encode() (body []byte, tag string) {
	plain, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("redfish: encode a resource: %v", err)) // strings, numbers, lists and objects always encode
	}
	sum := sha256.Sum256(plain)
	tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	quoted, _ := json.Marshal(tag)
	body = append([]byte(`{"@odata.etag":`), quoted...)
	return append(append(append(body, ','), plain[1:]...), '\n'), tag
}

// sameTag reports whether a list of If-Match or If-None-Match has a tag. Some clients send it as weak.
func sameTag(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// readObject reads the JSON object of a request; an empty body is an empty object.
func readObject(r *http.Request) (object, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, ID: "GeneralError", Message: "the body of the request cannot be read: " + err.Error()}
	}
	o := object{}
	if strings.TrimSpace(string(b)) == "" {
		return o, nil
	}
	if err := json.Unmarshal(b, &o); err != nil || o == nil {
		return nil, &Error{Status: http.StatusBadRequest, ID: "MalformedJSON"}
	}
	return o, nil
}
