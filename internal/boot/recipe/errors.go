package recipe

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A DocumentError is an error in a document. Line and Column count from 1 in its source; 0 is not known.
type DocumentError struct {
	File         string // slash-separated, below the files folder
	Line, Column int
	Err          error
}

// Error returns "file:line:column: reason".
func (e *DocumentError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

// Unwrap returns the reason.
func (e *DocumentError) Unwrap() error { return e.Err }

// templatePlace matches an error of text/template after the name: a line, a column (from 0) unless it is a syntax error, and the reason.
var templatePlace = regexp.MustCompile(`^:(\d+)(?::(\d+))?: (?s:(.*))$`)

// templateError returns the error of a template with its place in the document.
func templateError(file string, err error) error {
	e := &DocumentError{File: file, Err: err}
	rest, ok := strings.CutPrefix(err.Error(), "template: "+file)
	m := templatePlace.FindStringSubmatch(rest)
	if !ok || m == nil {
		return e
	}
	e.Line, _ = strconv.Atoi(m[1])
	if column, err := strconv.Atoi(m[2]); err == nil {
		e.Column = column + 1
	}
	e.Err = &templateFault{readable(strings.TrimPrefix(m[3], fmt.Sprintf("executing %q ", file))), err}
	return e
}

// keyError removes from the error of a template what its key says already.
func keyError(key string, err error) error {
	if e, ok := templateError(key, err).(*DocumentError); ok && e.Line > 0 {
		return e.Err
	}
	return err
}

// A templateFault is an error of text/template without the place.
type templateFault struct {
	reason string
	err    error
}

// Error is the reason alone.
func (f *templateFault) Error() string { return f.reason }

// Unwrap returns the error of text/template.
func (f *templateFault) Unwrap() error { return f.err }

// A Fault is why a host would not boot.
type Fault struct {
	Key string // of the profile: "args[1]", "config", or "script" for what the recipe makes of all of them
	Err error  // a *DocumentError where a document is at fault
}

// Everyone reports whether the fault affects every host: the lab file names a field that templates do not have, or a file that this
// process may not read. Otherwise a host lacks a value, or a document is wrong, which may be fixed at any time.
func (f Fault) Everyone() bool {
	if errors.Is(f.Err, fs.ErrPermission) {
		return true
	}
	var document *DocumentError
	var template *templateFault
	return !errors.As(f.Err, &document) && errors.As(f.Err, &template) && unknownField.MatchString(template.err.Error())
}

// unknownField matches the error of text/template for a field that a type does not have.
var unknownField = regexp.MustCompile(`can't evaluate field \w+ in type (recipe|lab|netip)\.`)

// Faults renders everything for d and returns what would fail at boot. A document that does not exist yet is no fault.
func (r *Recipe) Faults(d Data) (faults []Fault) {
	add := func(key string, err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, Fault{key, err})
		}
	}
	for _, l := range r.lines() {
		_, err := l.render(&d)
		add(l.key(), err)
	}
	if len(faults) > 0 {
		return faults // the script would fail for the same reason
	}
	if r.profile.NetBoots() {
		_, err := r.Script(d)
		add(r.scriptKey(), err)
		if err == nil && d.chain == lab.ChainGRUB {
			_, err := r.GRUB(d)
			add("chain", err)
		}
	}
	names := map[string]string{}
	for _, doc := range r.list(d) {
		if first := names[doc.name]; first != "" && doc.file != "" {
			add(doc.key, fmt.Errorf("%s is called %s as %s is: want different file names, since machines fetch documents by name", doc.file, doc.name, first))
			continue
		}
		names[doc.name] = doc.key
		_, _, err := doc.render(r, d)
		add(doc.key, err)
	}
	return faults
}

// Warnings are what the readers of d's documents will ignore, such as keys that Ignition does not know. They keep no host from booting.
func (r *Recipe) Warnings(d Data) (faults []Fault) {
	for _, doc := range r.list(d) {
		_, warnings, _ := doc.render(r, d) // an error is a fault
		for _, w := range warnings {
			faults = append(faults, Fault{doc.key, w})
		}
	}
	return faults
}

// lines returns the templates of the lab file.
func (r *Recipe) lines() []*line {
	all := append([]*line{r.kernel, r.rootfs, r.image, r.config}, slices.Concat(r.initrd, r.args, r.documents)...)
	return slices.DeleteFunc(all, func(l *line) bool { return l == nil })
}

func (r *Recipe) scriptKey() string {
	if r.profile.IPXE != "" {
		return "ipxe"
	}
	return "script"
}

// Reason returns the message of an error that hosts have.
func Reason(err error) string {
	text := err.Error()
	if strings.Contains(text, "nil pointer evaluating *recipe.ClusterData") {
		text += ": the host belongs to no cluster: want {{if .Cluster}} around it, or cluster there"
	}
	return text
}

// The errors of text/template for a missing value, after the position.
var (
	missingEntry = regexp.MustCompile(`^at <([^>]*)>: map has no entry for key "(.*)"$`)
	typedKey     = regexp.MustCompile(`^at <([^>]*)>: error calling index: value has type recipe\.\w+; should be string$`)
	failedCall   = regexp.MustCompile(`^at <([^>]*)>: error calling \w+: (.*)$`)
	missingField = regexp.MustCompile(`^at <([^>]*)>: can't evaluate field (\w+) in type \*?recipe\.(\w+)$`)
)

// readable translates an error of text/template into the words of the lab file.
func readable(reason string) string {
	if m := missingEntry.FindStringSubmatch(reason); m != nil {
		if strings.HasPrefix(m[1], ".Host.Vars.") || strings.HasPrefix(m[1], "$.Host.Vars.") {
			return fmt.Sprintf("{{%s}} is not set: want vars: {%s: …} for the host", m[1], m[2])
		}
		return fmt.Sprintf("{{%s}} is not set: there is no %q", m[1], m[2])
	}
	if m := typedKey.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("{{%s}}: index needs plain text: want the key as (print …), such as {{index .Host.Vars (print .Host.Role)}}", m[1])
	}
	if m := missingField.FindStringSubmatch(reason); m != nil {
		fields := fieldsOf(m[3])
		hint := ""
		if near := lab.Nearest(m[2], fields); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return fmt.Sprintf("{{%s}} is not known to templates: there is no %s, want one of %s%s", m[1], m[2], strings.Join(fields, ", "), hint)
	}
	if m := failedCall.FindStringSubmatch(reason); m != nil {
		return fmt.Sprintf("{{%s}}: %s", m[1], m[2])
	}
	return lab.TemplateReason(reason)
}

// fieldsOf returns the fields of a type of Data that templates may use.
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
