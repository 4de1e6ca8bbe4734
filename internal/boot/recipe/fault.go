package recipe

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A DocumentError is what is wrong in a document. Line and Column count from 1 in the file as it is written; 0 is
// somewhere in it.
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

// templatePlace is how text/template begins its errors, behind the name: a line, a column (from 0) unless it is a mistake
// of syntax, and what it was about.
var templatePlace = regexp.MustCompile(`^:(\d+)(?::(\d+))?: (?s:(.*))$`)

// templateError finds where in a document a template failed.
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
	e.Err = &templateFault{plainly(strings.TrimPrefix(m[3], fmt.Sprintf("executing %q ", file))), err}
	return e
}

// keyError takes from an error of a template of one key what the key says already.
func keyError(key string, err error) error {
	if e, ok := templateError(key, err).(*DocumentError); ok && e.Line > 0 {
		return e.Err
	}
	return err
}

// A templateFault is an error of text/template without the place, which is told once.
type templateFault struct {
	reason string
	err    error
}

// Error is the reason alone.
func (f *templateFault) Error() string { return f.reason }

// Unwrap returns the error as text/template made it.
func (f *templateFault) Unwrap() error { return f.err }

// A Fault is why a host would not boot.
type Fault struct {
	Key string // of the profile: "args[1]", "config", or "script" for what the recipe makes of all of them
	Err error  // a *DocumentError where a document is at fault
}

// Everyone reports whether the lab file itself is at fault, for every host alike: it names what templates do not have, or
// this process may not read what it names. Otherwise it is a value that some host lacks, or a document, which is not part of
// the lab file and may be mended at any time.
func (f Fault) Everyone() bool {
	if errors.Is(f.Err, fs.ErrPermission) {
		return true
	}
	var document *DocumentError
	var template *templateFault
	return !errors.As(f.Err, &document) && errors.As(f.Err, &template) && unknownField.MatchString(template.err.Error())
}

// unknownField is how text/template says that a type has no such field: one of ours, or of what is in it.
var unknownField = regexp.MustCompile(`can't evaluate field \w+ in type (recipe|lab|netip)\.`)

// Faults renders everything for d and returns what would fail at boot. A document that is not there yet is none of it.
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
		return faults // the script would only say so again
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
			add(doc.key, fmt.Errorf("%s is called %s as %s is: want a name of its own, since machines fetch it by that", doc.file, doc.name, first))
			continue
		}
		names[doc.name] = doc.key
		add(doc.key, doc.check(r, d))
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

// For says for which host something failed.
func For(host string, err error) string {
	if strings.Contains(err.Error(), "nil pointer evaluating *recipe.ClusterData") {
		return fmt.Sprintf("for host %s: %v: it belongs to no cluster: want {{if .Cluster}} around it, or cluster there", host, err)
	}
	return fmt.Sprintf("for host %s: %v", host, err)
}
