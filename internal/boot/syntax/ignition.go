package syntax

import (
	"encoding/json"
	"strings"

	"github.com/coreos/ignition/v2/config"
)

// ignition validates a document as Ignition itself does, every version of specification 3. What it warns of is no error:
// a machine boots with it.
func ignition(text []byte) *Error {
	if e := jsonText(text); e != nil {
		return e
	}
	if strings.HasPrefix(versionOf(text), "2.") {
		return nil // of OpenShift before 4.6: its own Ignition knows
	}
	_, report, err := config.Parse(text)
	for _, entry := range report.Entries {
		if entry.Kind.IsFatal() {
			return reported("not good Ignition: ", entry)
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
