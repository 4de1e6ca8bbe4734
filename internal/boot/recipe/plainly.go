package recipe

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// How text/template says that a value is missing, behind the place: which expression, and what of it.
var (
	missingEntry = regexp.MustCompile(`^at <([^>]*)>: map has no entry for key "(.*)"$`)
	typedKey     = regexp.MustCompile(`^at <([^>]*)>: error calling index: value has type recipe\.\w+; should be string$`)
	missingField = regexp.MustCompile(`^at <([^>]*)>: can't evaluate field (\w+) in type \*?recipe\.(\w+)$`)
)

// plainly says in the words of the lab file what text/template says in Go's.
func plainly(reason string) string {
	if m := missingEntry.FindStringSubmatch(reason); m != nil {
		if strings.HasPrefix(m[1], ".Host.Vars.") || strings.HasPrefix(m[1], "$.Host.Vars.") {
			return fmt.Sprintf("{{%s}} is not set: want vars: {%s: …} for the host", m[1], m[2])
		}
		return fmt.Sprintf("{{%s}} is not set: there is no %q", m[1], m[2])
	}
	if m := typedKey.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("{{%s}}: index wants plain text: want what is looked up as (print …), such as {{index .Host.Vars (print .Host.Role)}}", m[1])
	}
	if m := missingField.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("{{%s}} is not known to templates: there is no %s, want one of %s", m[1], m[2], strings.Join(fieldsOf(m[3]), ", "))
	}
	return reason
}

// fieldsOf returns what templates may name of a type of Data.
func fieldsOf(name string) (names []string) {
	for _, v := range []any{Data{}, HostData{}, ClusterData{}, NetworkData{}, ProfileData{}, ApplianceData{}, MirrorData{}} {
		t := reflect.TypeOf(v)
		if t.Name() != name {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && len(f.Index) == 1 {
				names = append(names, f.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
