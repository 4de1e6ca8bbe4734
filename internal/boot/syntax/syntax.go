package syntax

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

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

// Check returns the first error in text, or nil. The reason holds nothing of the document but keys and names of elements: it is logged, and
// documents hold passwords.
func Check(f Format, text []byte) *Error {
	e, _ := Report(f, text)
	return e
}

// Report is Check, and returns the warnings of a document without an error too: what Ignition will ignore.
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
