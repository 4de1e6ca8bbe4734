package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// Options say what a lab is loaded against. The zero value needs no interfaces and no root.
type Options struct {
	// InterfaceAddr returns the address of an interface of this machine inside subnet. Nil, or false: not known here.
	InterfaceAddr func(iface string, subnet netip.Prefix) (netip.Addr, bool)
	// FileExists reports whether a file exists. Nil: the file system.
	FileExists func(path string) bool
	// Appliance is the one that a running daemon was started with. It stays in use, whatever the file says; a difference
	// is a warning. Nil: the file's.
	Appliance *lab.Appliance
}

// Lab reads a lab file, or a folder whose *.yaml and *.yml files are merged in the order of their names; the same key
// in two of them is an error. What is wrong in the files is returned as Problems, all at once, with positions; any other
// error is one of reading them.
func Lab(path string, o Options) (*lab.Lab, error) { return LabWith(path, "", nil, o) }

// LabWith is Lab with one more file of that name and text, to try lines before they are written. With an empty text it is Lab.
func LabWith(path, name string, text []byte, o Options) (*lab.Lab, error) {
	l, _, err := read(path, name, text, o)
	return whole(l, err)
}

// whole returns a lab without problems alone.
func whole(l *lab.Lab, err error) (*lab.Lab, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Check is Lab that returns a lab with problems and its warnings, too, as far as it could be resolved: nil if there is too little of it.
func Check(path string, o Options) (*lab.Lab, lab.Problems, error) { return read(path, "", nil, o) }

func read(path, name string, text []byte, o Options) (*lab.Lab, lab.Problems, error) {
	names, err := labFiles(path)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoder()
	raw := new(rawLab)
	for _, name := range names {
		data, err := readLimited(name)
		if err != nil {
			return nil, nil, err
		}
		d.decodeFile(name, data, raw)
	}
	if len(text) > 0 {
		d.decodeFile(name, text, raw)
	}
	return finish(d, raw, o)
}

// Parse reads one lab file from memory. Relative paths in it start at the folder of name; positions are reported under
// name as it is. The error is always Problems.
func Parse(name string, data []byte, o Options) (*lab.Lab, error) {
	d := newDecoder()
	raw := new(rawLab)
	d.decodeFile(name, data, raw)
	l, _, err := finish(d, raw, o)
	return whole(l, err)
}

// labFiles returns the files that path stands for.
func labFiles(path string) ([]string, error) {
	info, err := regular.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read lab: %w", err)
	case !info.IsDir():
		return []string{path}, nil
	}
	entries, err := regular.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	var names []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !e.IsDir() && e.Name()[0] != '.' && (ext == ".yaml" || ext == ".yml") {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("read lab: no *.yaml or *.yml file in %s", path)
	case len(names) > maxFiles:
		return nil, fmt.Errorf("read lab: %d files in %s: want at most %d", len(names), path, maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

// maxPipeWait is for how long a lab file may be written that is read from a pipe.
const maxPipeWait = time.Minute

// readLimited reads a file of up to one byte more than decodeFile accepts.
func readLimited(name string) ([]byte, error) {
	wait := regular.Wait
	if info, err := regular.Stat(name); err == nil && !info.Mode().IsRegular() { // a pipe, a terminal
		wait = maxPipeWait
	}
	data, err := regular.Within(name, wait, func() ([]byte, error) { return readAtMost(name) })
	if errors.Is(err, regular.ErrNoAnswer) {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	return data, err
}

func readAtMost(name string) ([]byte, error) {
	// Do not block on a pipe without a writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read lab: %w", err)
	}
	data := make([]byte, 0, min(info.Size(), maxFileSize)+512)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF) || len(data) > maxFileSize:
			return data, nil
		case err != nil:
			return nil, fmt.Errorf("read lab: %w", err)
		}
		data = slices.Grow(data, 512)
	}
}

// decodeFile decodes one file into raw. Whatever is wrong becomes a problem, a bug of a parser included.
func (d *decoder) decodeFile(name string, data []byte, raw *rawLab) {
	d.files = append(d.files, name)
	d.file = uint16(len(d.files) - 1)
	top := &yaml.Node{Line: 1, Column: 1}
	defer func() {
		if p := recover(); p != nil {
			d.path, d.alias, d.depth, d.broken = nil, nil, 0, true
			d.problem(top, "cannot be read: %v", p)
		}
	}()
	if len(data) > maxFileSize {
		d.broken = true
		d.problem(top, "is larger than %d MiB", maxFileSize>>20)
		return
	}
	doc, err := oneDocument(data)
	noMapping := err != nil || len(doc.Content) > 0 && doc.Content[0].Kind != yaml.MappingNode
	if noMapping && d.otherFormat(name, data) {
		return
	}
	if err != nil {
		doc = d.syntax(data, err)
	}
	if len(doc.Content) > 0 {
		d.into(doc.Content[0], raw)
	}
}

// oneDocument parses data. An empty file, or one of comments alone, is an empty document.
func oneDocument(data []byte) (*yaml.Node, error) {
	doc := new(yaml.Node)
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, err
	}
	switch err := loader.Load(doc); {
	case errors.Is(err, io.EOF):
		return doc, nil
	case err != nil:
		return nil, err
	}
	switch err := loader.Load(new(yaml.Node)); {
	case err == nil:
		return nil, errors.New("there is a second document below ---: want one in a file")
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return doc, nil
}

// notYAML begins the messages of syntax.
const notYAML = "not YAML: "

// maxSyntax is how many errors of YAML's grammar are reported of one file.
const maxSyntax = 5

// syntax reports where data is not YAML, and returns what can be read nevertheless, so that other errors are reported too: the lines as
// they were probably meant, or without the top-level entry that cannot be read. Values of such lines are not reported again.
func (d *decoder) syntax(data []byte, err error) *yaml.Node {
	doc := new(yaml.Node)
	left := &effort{maxDiagnosed, maxRepairs}
	for range maxSyntax {
		line, column, reason := yamlReason(err)
		at := &yaml.Node{Line: max(line, 1), Column: max(column, 1)}
		if d.unread[lineOf{d.file, at.Line}] != nil {
			break // no better for what was tried
		}
		var m mistake
		if anchor, ok := anchorReason(data, reason); ok {
			reason = anchor
		} else if found, ok := left.diagnose(data, line); ok {
			m = found
			at.Line, at.Column, reason = m.line, m.column, m.reason
		}
		d.problem(at, notYAML+"%s", plainly(reason))
		d.unread[lineOf{d.file, at.Line}] = d.problems[len(d.problems)-1]
		var whole bool
		if data, whole = readable(data, at.Line, m.repaired); !whole {
			d.broken = true // what refers to the missing entry cannot be checked
		}
		if doc, err = oneDocument(data); err == nil {
			return doc
		}
	}
	d.broken = true
	return new(yaml.Node)
}

// readable returns data with a repaired line, and true, or without the top-level entry of that line: where no repair is known, or where
// one leaves an error that the entry causes.
func readable(data []byte, line int, repaired string) ([]byte, bool) {
	without := withoutEntry(data, line)
	if repaired == "" {
		return without, false
	}
	data = withLine(data, line, repaired)
	if _, err := oneDocument(data); err != nil {
		if _, other := oneDocument(without); other == nil || other.Error() != err.Error() {
			return without, false
		}
	}
	return data, true
}

// A lineOf is one line of a file of the lab.
type lineOf struct {
	file uint16
	line int
}

// finish resolves what was decoded. Of a lab with problems, what could be resolved is returned, and its warnings, unless they may follow from lines that were
// not understood.
func finish(d *decoder, raw *rawLab, o Options) (*lab.Lab, lab.Problems, error) {
	if d.broken || d.stopped {
		return nil, nil, d.problems.Err()
	}
	decoded := slices.Clone(d.problems)
	r := newResolver(d, raw, o)
	err := r.run()
	if err != nil {
		err = d.causes(err, r, decoded)
	}
	switch {
	case err == nil:
		return r.lab, r.lab.Warnings, nil
	case len(d.unread) > 0:
		return nil, nil, d.onceEach(err)
	default:
		return r.lab, r.lab.Warnings, err
	}
}

// onceEach removes the problems of lines that are not YAML, and those that refer to such a line: the same mistake causes them.
func (d *decoder) onceEach(err error) error {
	var problems lab.Problems
	if len(d.unread) == 0 || !errors.As(err, &problems) {
		return err
	}
	return slices.DeleteFunc(problems, func(p *lab.Problem) bool {
		for at, own := range d.unread {
			there := func(o lab.Pos) bool { return o.File == d.files[at.file] && o.Line == at.line }
			if p != own && (there(p.Pos) || slices.ContainsFunc(d.named[p], there)) {
				return true
			}
		}
		return false
	}).Err()
}

// YAMLValue returns the first YAML document of a text: string, int, float64, bool, nil, []any or map[string]any.
func YAMLValue(text []byte) (v any, err error) {
	defer func() {
		if p := recover(); p != nil { // a bug of the parser
			err = fmt.Errorf("cannot be read: %v", p)
		}
	}()
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("is larger than %d MiB", maxFileSize>>20)
	}
	doc, err := oneDocument(text)
	if err != nil || len(doc.Content) == 0 {
		return nil, err
	}
	d := newDecoder()
	d.files = []string{""}
	return d.free(doc.Content[0]), d.problems.Err()
}

// YAMLError returns the first syntax error of a stream of YAML documents, and its position; line and column count from 1, and
// are 0 if the parser gives none.
func YAMLError(text []byte) (line, column int, err error) {
	defer func() {
		if p := recover(); p != nil { // a bug of the parser is no reason to end the daemon
			line, column, err = 0, 0, fmt.Errorf("cannot be read: %v", p)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return 0, 0, err
	}
	for {
		switch err := loader.Load(new(yaml.Node)); {
		case errors.Is(err, io.EOF):
			return 0, 0, nil
		case err != nil:
			line, column, reason := yamlReason(err)
			return line, column, errors.New(reason)
		}
	}
}

// yamlReason splits an error of the YAML parser.
func yamlReason(err error) (line, column int, reason string) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return 0, 0, strings.TrimPrefix(err.Error(), "yaml: ")
	}
	return load.Mark.Line, load.Mark.Column, strings.TrimPrefix(load.Message, "yaml: ")
}

// Appliance reads as much of the appliance as possible from a lab file that may not be valid; the rest has its default. It is
// for programs that talk to a daemon while the lab file is being edited.
func Appliance(path string) (a lab.Appliance) {
	d, raw := newDecoder(), new(rawLab)
	names, err := labFiles(path)
	if err != nil {
		names = []string{path}
	}
	for _, name := range names {
		data, err := readLimited(name)
		if err != nil {
			data = nil // its defaults
		}
		if _, err := oneDocument(data); err != nil {
			data = applianceBlock(data)
		}
		d.decodeFile(name, data, raw)
	}
	r := newResolver(d, raw, Options{})
	defer func() {
		_ = recover() // a file that is not a lab
		a = r.lab.Appliance
	}()
	r.general()
	r.appliance()
	return r.lab.Appliance
}

// applianceBlock cuts the appliance out of a file that is not YAML elsewhere: its key, and the lines below that are
// indented, comments or empty.
func applianceBlock(data []byte) (block []byte) {
	for line := range bytes.Lines(data) {
		switch {
		case bytes.HasPrefix(line, []byte("appliance:")):
			block = append(block, line...)
		case block == nil:
		case len(bytes.TrimSpace(line)) > 0 && !bytes.ContainsRune([]byte(" \t#"), rune(line[0])):
			return block
		default:
			block = append(block, line...)
		}
	}
	return block
}

// otherFormats are how lines begin that the configuration of another server has and no lab file.
var otherFormats = []struct {
	server, format string // the format is that of bootlab import
	line           *regexp.Regexp
}{
	{"HAProxy", "haproxy", regexp.MustCompile(`(?m)^(global|defaults|(frontend|backend|listen|defaults)[ \t]+[^\s:]+)[ \t]*(#.*)?\r?$`)},
	{"dnsmasq", "dnsmasq", regexp.MustCompile(`(?m)^(interface|dhcp-range|dhcp-host|dhcp-option|dhcp-boot|listen-address|domain|server|address|host-record)=`)},
	{"ISC dhcpd", "dhcpd", regexp.MustCompile(`(?m)^\s*subnet\s+[0-9.]+\s+netmask\s+[0-9.]+\s*\{`)},
}

// mapKey matches a key of a lab file's top level.
var mapKey = regexp.MustCompile(`(?m)^[A-Za-z_]+:(\s|$)`)

// otherFormat reports a file that is the configuration of another server.
func (d *decoder) otherFormat(name string, data []byte) bool {
	if mapKey.Match(data) {
		return false
	}
	for _, f := range otherFormats {
		if at := f.line.FindIndex(data); at != nil {
			d.broken = true
			line := &yaml.Node{Line: 1 + bytes.Count(data[:at[0]], []byte("\n")), Column: 1}
			d.problem(line, "a configuration of %s, not a lab file: bootlab import %s %s prints one made from it", f.server, f.format, name)
			return true
		}
	}
	return false
}
