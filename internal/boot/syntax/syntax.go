package syntax

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// A Format is the format of a document.
type Format string

// The formats. Any is not checked.
const (
	Any       Format = ""
	Ignition  Format = "Ignition"
	YAML      Format = "YAML"
	JSON      Format = "JSON"
	XML       Format = "XML"
	UserData  Format = "cloud-init user-data"
	Preseed   Format = "preseed"
	Kickstart Format = "kickstart"
)

// Of returns the format of files with that ending, such as ".ign".
func Of(ext string) Format {
	switch ext {
	case ".ign":
		return Ignition
	case ".yaml", ".yml":
		return YAML
	case ".json":
		return JSON
	case ".xml":
		return XML
	case ".ks":
		return Kickstart
	}
	return Any
}

// An Error is an error in a document. Line and Column count from 1; 0 is not known.
type Error struct {
	Line, Column int
	Reason       string
}

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Report returns the first error in text, or nil, and the warnings of a document without an error: what Ignition will ignore. A reason holds
// nothing of the document but keys and names of elements: it is logged, and documents hold passwords.
func Report(f Format, text []byte) (broken *Error, warnings []*Error) {
	if f == Ignition {
		broken, warnings = ignition(text)
	} else {
		broken = check(f, text)
	}
	if broken != nil {
		broken.Reason = hide(broken.Reason)
	}
	return broken, warnings
}

// quoted matches a document's values in errors of parsers: words in quotes, and entities.
var quoted = regexp.MustCompile("'[^']{4,}'|\"[^\"]{4,}\"|`[^`]{4,}`|&[^ ]{4,}")

func hide(reason string) string { return quoted.ReplaceAllString(reason, "…") }

func check(f Format, text []byte) *Error {
	switch f {
	case YAML:
		return yaml(text)
	case JSON:
		return jsonText(text)
	case XML:
		return xmlText(text)
	case UserData:
		return userData(text)
	case Preseed:
		return preseed(text)
	case Kickstart:
		return kickstart(text)
	}
	return nil
}

func errorAt(line, column int, format string, args ...any) *Error {
	return &Error{Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
}

// offset returns an error at the line and column of the byte at that offset.
func offset(text []byte, at int64, format string, args ...any) *Error {
	before := text[:max(0, min(at, int64(len(text))))]
	return errorAt(1+bytes.Count(before, []byte{'\n'}), len(before)-bytes.LastIndexByte(before, '\n'), format, args...)
}

// yaml reads all documents of a stream: Talos takes several.
func yaml(text []byte) *Error {
	if line, column, err := load.YAMLError(text); err != nil {
		return errorAt(line, column, "not YAML: %v", err)
	}
	return nil
}

func jsonText(text []byte) *Error {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&v)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return offset(text, syntax.Offset-1, "not JSON: %v", err)
	case err != nil: // it ends too early
		return offset(text, int64(len(text)), "not JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return offset(text, d.InputOffset(), "not JSON: want nothing after its end")
	}
	return nil
}

// xmlText checks that a document is well-formed and has one root.
func xmlText(text []byte) *Error {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // only bytes matter here
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		line, column := d.InputPos()
		switch token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				roots++
			}
		case xml.EndElement:
			depth--
		}
		switch {
		case errors.Is(err, io.EOF) && roots == 1:
			return nil
		case errors.Is(err, io.EOF):
			return errorAt(line, column, "not XML: %d root elements: want one", roots)
		case err != nil:
			return errorAt(line, column, "not XML: %s", strings.TrimPrefix(err.Error(), "XML "))
		}
	}
}

// userData checks the first line, by which cloud-init recognises a format; of cloud-config, the rest too.
func userData(text []byte) *Error {
	first, _, _ := bytes.Cut(text, []byte{'\n'})
	switch header := strings.TrimRight(string(first), " \r"); {
	case header == "#cloud-config":
		return yaml(text)
	case strings.HasPrefix(header, "#!"), strings.HasPrefix(header, "#include"), strings.HasPrefix(header, "#cloud-boothook"),
		strings.HasPrefix(header, "#cloud-config-archive"), strings.HasPrefix(header, "#part-handler"),
		strings.HasPrefix(header, "## template:"), strings.HasPrefix(strings.ToLower(header), "content-type:"),
		strings.HasPrefix(strings.ToLower(header), "mime-version:"):
		return nil
	}
	return errorAt(1, 1, "not user-data: cloud-init goes by the first line: want #cloud-config, #! or another of its headers")
}

// debconfTypes are the types of questions (debconf-devel(7)), and seen, which marks one.
const debconfTypes = "string boolean select multiselect note text password title error seen"

// preseed checks what debconf-set-selections reads: owner, question, type and value, in lines that a backslash continues. It
// skips a line that it cannot read, and the installer then stops and asks.
func preseed(text []byte) *Error {
	types := strings.Fields(debconfTypes)
	inside, comment := false, false // the line before continues in this one, and is a comment
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		fields := strings.Fields(line)
		remark := strings.HasPrefix(strings.TrimLeft(line, " \t"), "#")
		switch {
		case inside && comment && !remark && len(fields) > 0:
			return errorAt(i+1, 1, "not a preseed: the comment before ends in a backslash and takes this line with it")
		case inside || remark || len(fields) == 0:
		case len(fields) < 3:
			return errorAt(i+1, 1, "not a preseed: want owner, question, type and value, such as d-i debian-installer/locale string en_US")
		case !slices.Contains(types, fields[2]):
			return errorAt(i+1, strings.Index(line, fields[2])+1, "not a preseed: the third word is not a question type: want one of %s", debconfTypes)
		case fields[2] == "boolean" && len(fields) > 3 && fields[3] != "true" && fields[3] != "false":
			return errorAt(i+1, 1, "not a preseed: the question is boolean: want true or false")
		}
		comment = remark || inside && comment
		inside = strings.HasSuffix(line, "\\")
	}
	return nil
}

// kickstartSections are closed by %end (anaconda's kickstart documentation). %include and %ksappend are lines of their own.
var kickstartSections = []string{"%packages", "%pre", "%post", "%pre-install", "%onerror", "%traceback", "%addon", "%anaconda", "%certificate"}

// kickstart checks that every section is known and closed: anaconda stops at the first that is not.
func kickstart(text []byte) *Error {
	open, at := "", 0
	for i, line := range strings.Split(string(text), "\n") {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "%end" && open == "":
			return errorAt(i+1, 1, "not a kickstart: %%end closes no section")
		case name == "%end":
			open = ""
		case open != "" && slices.Contains(kickstartSections, name):
			return errorAt(at, 1, "not a kickstart: %s is not closed before %s of line %d: want %%end", open, name, i+1)
		case open != "" || !strings.HasPrefix(name, "%") || name == "%include" || name == "%ksappend":
		case !slices.Contains(kickstartSections, name):
			return errorAt(i+1, 1, "not a kickstart: there is no such section: want one of %s", strings.Join(kickstartSections, " "))
		default:
			open, at = name, i+1
		}
	}
	if open != "" {
		return errorAt(at, 1, "not a kickstart: %s is not closed: want %%end", open)
	}
	return nil
}

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
