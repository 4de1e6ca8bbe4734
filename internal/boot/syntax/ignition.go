package syntax

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/coreos/ignition/v2/config"
)

// ignition validates a document as Ignition does, every version of specification 3. A warning, such as of an unknown key, is no error: a
// machine boots with it.
func ignition(text []byte) (broken *Error, warnings []*Error) {
	if e := jsonText(text); e != nil {
		return e, nil
	}
	if strings.HasPrefix(versionOf(text), "2.") {
		return nil, nil // of OpenShift before 4.6, which this library does not know
	}
	_, report, err := config.Parse(text)
	for _, entry := range report.Entries {
		if entry.Kind.IsFatal() {
			return reported("invalid Ignition: ", entry), nil
		}
		warning := reported("Ignition: ", entry)
		warning.Reason = unusedKey.ReplaceAllString(warning.Reason, "Ignition ignores the unknown key $1")
		warnings = append(warnings, warning)
	}
	if err != nil {
		return &Error{Reason: "not Ignition: " + err.Error()}, nil
	}
	return nil, warnings
}

// unusedKey matches Ignition's warning of a key that it does not know.
var unusedKey = regexp.MustCompile(`^Ignition: [Uu]nused key (\S+)`)

func versionOf(text []byte) string {
	var d struct {
		Ignition struct{ Version string }
	}
	if json.Unmarshal(text, &d) != nil {
		return ""
	}
	return d.Ignition.Version
}
