package syntax

import (
	"encoding/json"
	"strings"

	"github.com/coreos/ignition/v2/config"
)

// ignition validates a document as Ignition does, every version of specification 3. A warning is no error: a machine boots with it.
func ignition(text []byte) *Error {
	if e := jsonText(text); e != nil {
		return e
	}
	if strings.HasPrefix(versionOf(text), "2.") {
		return nil // of OpenShift before 4.6, which this library does not know
	}
	_, report, err := config.Parse(text)
	for _, entry := range report.Entries {
		if entry.Kind.IsFatal() {
			return reported("invalid Ignition: ", entry)
		}
	}
	if err != nil {
		return &Error{Reason: "not Ignition: " + err.Error()}
	}
	return nil
}

func versionOf(text []byte) string {
	var d struct {
		Ignition struct{ Version string }
	}
	if json.Unmarshal(text, &d) != nil {
		return ""
	}
	return d.Ignition.Version
}
