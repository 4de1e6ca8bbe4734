package syntax_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/syntax"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A sample is a document and what is wrong with it: "line:column: reason"; empty: nothing.
type sample struct {
	name   string
	format syntax.Format
	text   string
	want   string
}

func samples() []sample {
	return []sample{
		{"whole", syntax.Ignition, `{"ignition": {"version": "3.3.0"}, "passwd": {"users": [{"name": "core"}]}}`, ""},
		{"old version", syntax.Ignition, `{"ignition": {"version": "3.0.0"}}`, ""},
		{"version 2", syntax.Ignition, `{"ignition": {"version": "2.2.0"}}`, ""},
		{"unknown key", syntax.Ignition, `{"ignition": {"version": "3.3.0"}, "storrage": {}}`, ""}, // a warning
		{"no version", syntax.Ignition, `{}`, "0:0: not Ignition: invalid config version (couldn't parse)"},
		{"future version", syntax.Ignition, `{"ignition": {"version": "9.0.0"}}`, "0:0: not Ignition: unsupported config version"},
		{"path", syntax.Ignition, "{\"ignition\": {\"version\": \"3.3.0\"},\n \"storage\": {\"files\": [{\"path\": \"etc/x\"}]}}",
			"2:33: invalid Ignition: path not absolute ($.storage.files.0.path)"},
		{"wrong type", syntax.Ignition, "{\"ignition\": {\"version\": \"3.3.0\"},\n \"storage\": {\"files\": {}}}", "2:"},
		{"comma", syntax.Ignition, "{\"ignition\":\n {\"version\": \"3.3.0\"},}", "2:23: not JSON: invalid character '}' looking for beginning of object key string"},
		{"empty", syntax.Ignition, "", "1:1: not JSON: EOF"},

		{"whole", syntax.YAML, "a: [1, 2]\n---\nb: {c: d}\n", ""},
		{"empty", syntax.YAML, "", ""},
		{"indent", syntax.YAML, "a:\n  b: 1\n c: 2\n", "3:2: not YAML: did not find expected key"},
		{"second document", syntax.YAML, "a: 1\n---\n{b\n", "4:1: not YAML: "},
		{"tab", syntax.YAML, "a:\n\tb: 1\n", "2:"},
		{"twice", syntax.YAML, "a: 1\na: 2\n", ""}, // its reader says so, or takes the last

		{"whole", syntax.JSON, "{\"a\": [1, null]}\n", ""},
		{"more", syntax.JSON, "{}\n{}", "2:"},
		{"comment", syntax.JSON, "{\n  // Jsonnet\n}", "2:3: not JSON: invalid character '/' looking for beginning of object key string"},

		{"whole", syntax.XML, "<?xml version=\"1.0\"?>\n<!DOCTYPE profile>\n<profile xmlns=\"http://www.suse.com/1.0/yast2ns\" xmlns:config=\"http://www.suse.com/1.0/configns\">\n" +
			"<general><mode><confirm config:type=\"boolean\">false</confirm></mode></general></profile>\n", ""},
		{"another encoding", syntax.XML, "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>x</a>", ""},
		{"not closed", syntax.XML, "<a>\n<b></a>", "2:8: not XML: syntax error on line 2: element <b> closed by </a>"},
		{"ends early", syntax.XML, "<a>\n", "2:1: not XML: syntax error on line 2: unexpected EOF"},
		{"ampersand", syntax.XML, "<a>x & y</a>", "1:7: not XML: syntax error on line 1: invalid character entity & (no semicolon)"},
		{"text", syntax.XML, "hello", "1:6: not XML: 0 root elements: want one"},
		{"two roots", syntax.XML, "<a/><b/>", "1:9: not XML: 2 root elements: want one"},

		{"cloud-config", syntax.UserData, "#cloud-config\nautoinstall:\n  version: 1\n", ""},
		{"script", syntax.UserData, "#!/bin/sh\nexit 0\n", ""},
		{"template", syntax.UserData, "## template: jinja\n#cloud-config\n{% if x %}\n", ""},
		{"no header", syntax.UserData, "autoinstall: {}\n", "1:1: not user-data: "},
		{"header with a typo", syntax.UserData, "# cloud-config\na: 1\n", "1:1: not user-data: "},
		{"broken", syntax.UserData, "#cloud-config\na: [\n", "3:1: not YAML: "},

		{"whole", syntax.Preseed, "# comment \\\n# goes on\nd-i debian-installer/locale string en_US\n\n" +
			"d-i partman-auto/expert_recipe string \\\n  boot-root :: \\\n    40 50 100 ext4 \\\n    .\nd-i mirror/http/proxy string\n" +
			"\td-i passwd/root-password password r00t me\ntasksel tasksel/first multiselect standard, ssh-server\nd-i x/y boolean true\nd-i x/y seen false\r\n", ""},
		{"no value and no type", syntax.Preseed, "d-i a/b string x\nd-i c/d\n", "2:1: not a preseed: want owner, question, type and value, such as d-i debian-installer/locale string en_US"},
		{"no owner", syntax.Preseed, "debian-installer/locale string en_US\n",
			"1:32: not a preseed: the third word is not a question type: want one of string boolean select multiselect note text password title error seen"},
		{"no such type", syntax.Preseed, "d-i a/b bool true\n", "1:9: not a preseed: the third word is not a question type: want one of string boolean select multiselect note text password title error seen"},
		{"yes", syntax.Preseed, "d-i a/b boolean yes\n", "1:1: not a preseed: the question is boolean: want true or false"},
		{"swallowed", syntax.Preseed, "# see below \\\nd-i a/b string x\n", "2:1: not a preseed: the comment before ends in a backslash and takes this line with it"},

		{"whole", syntax.Kickstart, "url --url=http://x\n%include /tmp/disk.ks\n%packages --ignoremissing\n@core\n%end\n\n%post --erroronfail\ncurl x\n# %end of it\n%end\n", ""},
		{"not closed", syntax.Kickstart, "reboot\n%post\ncurl x\n", "2:1: not a kickstart: %post is not closed: want %end"},
		{"not closed before the next", syntax.Kickstart, "%packages\n@core\n%post\nx\n%end\n", "1:1: not a kickstart: %packages is not closed before %post of line 3: want %end"},
		{"end of nothing", syntax.Kickstart, "reboot\n%end\n", "2:1: not a kickstart: %end closes no section"},
		{"no such section", syntax.Kickstart, "%postinstall\n%end\n", "1:1: not a kickstart: there is no such section: want one of "},
		{"anything", syntax.Any, "\x00{{", ""},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, s := range samples() {
		t.Run(string(s.format)+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if e, _ := syntax.Report(s.format, []byte(s.text)); e != nil {
				got = fmt.Sprintf("%d:%d: %v", e.Line, e.Column, e)
			}
			if !strings.HasPrefix(got, s.want) || (got == "") != (s.want == "") {
				t.Errorf("got  %q\nwant %q", got, s.want)
			}
		})
	}
}

// TestReferenceValidators has other programs check the same documents. They must agree on which are valid, except for the
// samples that they are known to judge differently.
func TestReferenceValidators(t *testing.T) {
	t.Parallel()
	for _, reference := range []struct {
		format  syntax.Format
		program string
		refuses func(file string) bool
		except  string // names of samples
	}{
		// Debian's is older than our library, but validates the same. It takes no specification 2.
		{syntax.Ignition, "ignition-validate", fails("ignition-validate"), "version 2"},
		{syntax.XML, "xmllint", fails("xmllint", "--noout", "--nonet"), ""},
		{syntax.JSON, "python3", fails("python3", "-m", "json.tool"), ""},
		// It accepts any word as a boolean, and drops a swallowed line without an error.
		{syntax.Preseed, "debconf-set-selections", debconfRefuses, "yes swallowed"},
	} {
		t.Run(reference.program, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, reference.program)
			for _, s := range samples() {
				if s.format != reference.format || strings.Contains(reference.except, s.name) {
					continue
				}
				file := filepath.Join(t.TempDir(), "document")
				if err := os.WriteFile(file, []byte(s.text), 0o600); err != nil {
					t.Fatal(err)
				}
				if refuses := reference.refuses(file); refuses != (s.want != "") {
					t.Errorf("%s: refused by %s: %v; by us: %q", s.name, reference.program, refuses, s.want)
				}
			}
		})
	}
}

// fails returns a function that runs a program with a file as its last argument.
func fails(program ...string) func(file string) bool {
	return func(file string) bool { return exec.Command(program[0], append(program[1:], file)...).Run() != nil }
}

// debconfRefuses goes by what it says: it also minds questions that no package on this machine has.
func debconfRefuses(file string) bool {
	var said bytes.Buffer
	cmd := exec.Command("debconf-set-selections", "--checkonly", file)
	cmd.Stderr = &said
	_ = cmd.Run()
	return strings.Contains(said.String(), "parse error") || strings.Contains(said.String(), "Unknown type")
}

// TestNothingSecret: errors quote no content of a document, since they go into logs and timelines.
func TestNothingSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"
	for format, texts := range map[syntax.Format][]string{
		syntax.Preseed:   {"d-i passwd/root-password " + secret, "d-i passwd/root-password boolean " + secret, secret},
		syntax.Kickstart: {"%" + secret, "%post\nrootpw " + secret},
		syntax.YAML:      {"password: *" + secret, "password: '" + secret, "a: {" + secret, secret + ": @" + secret, "a: \"" + secret + "\\q\""},
		syntax.JSON:      {"{\"password\": " + secret, "{\"password\": \"" + secret, "\"" + secret + "\" x"},
		syntax.XML:       {"<a>x&" + secret + "</a>", "<a b=" + secret + ">", "<a>" + secret, secret},
		syntax.UserData:  {secret, "#cloud-config\npassword: *" + secret},
		syntax.Ignition: {"{\"ignition\": {\"version\": \"" + secret + "\"}}", "{\"ignition\": {\"version\": \"3.3.0\"}, \"storage\": {\"files\": [{\"path\": \"/x\", \"contents\": {\"source\": \"" + secret + ":x\"}}]}}",
			"{\"ignition\": {\"version\": \"3.3.0\"}, \"passwd\": {\"users\": \"" + secret + "\"}}", "{\"ignition\": {\"version\": \"3.3.0\"}, \"storage\": {\"files\": [{\"path\": \"" + secret + "\"}]}}"},
	} {
		for _, text := range texts {
			e, _ := syntax.Report(format, []byte(text))
			if e == nil {
				t.Errorf("%s: %q is taken", format, text)
			} else if strings.Contains(e.Error(), secret) {
				t.Errorf("%s: %v", format, e)
			}
		}
	}
	for _, text := range []string{"variant: " + secret, "variant: fcos\nversion: 1.5.0\npasswd: *" + secret, "variant: fcos\nversion: " + secret,
		"variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: " + secret + "}]}"} {
		if _, e := syntax.Butane([]byte(text)); e == nil || strings.Contains(e.Error(), secret) {
			t.Errorf("%q: %v", text, e)
		}
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for ext, want := range map[string]syntax.Format{".ign": syntax.Ignition, ".yml": syntax.YAML, ".xml": syntax.XML, ".ks": syntax.Kickstart, ".jsonnet": syntax.Any, "": syntax.Any} {
		if got := syntax.Of(ext); got != want {
			t.Errorf("%s is %q, want %q", ext, got, want)
		}
	}
}

// FuzzCheck asserts that whatever is refused is refused for a reason and at a place inside the document, and that the line
// formats do not depend on how lines end.
func FuzzCheck(f *testing.F) {
	formats := []syntax.Format{syntax.Ignition, syntax.YAML, syntax.JSON, syntax.XML, syntax.UserData, syntax.Preseed, syntax.Kickstart}
	for _, s := range samples() {
		f.Add([]byte(s.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		last := 2
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // what YAML takes for the end of a line
			last += strings.Count(string(text), end)
		}
		for _, format := range formats {
			e, _ := syntax.Report(format, text)
			if e == nil {
				continue
			}
			if e.Reason == "" || e.Line < 0 || e.Column < 0 || e.Line > last {
				t.Errorf("%s: %+v of %d lines", format, e, last-1)
			}
		}
		if bytes.ContainsRune(text, '\r') {
			return
		}
		windows := bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
		for _, format := range []syntax.Format{syntax.Preseed, syntax.Kickstart} {
			if a, b := first(format, text), first(format, windows); (a == nil) != (b == nil) {
				t.Errorf("%s: %v with \\n, %v with \\r\\n", format, a, b)
			}
		}
	})
}

func TestButane(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"variant: fcos\nversion: 1.5.0\n":                                                                                      "",
		"variant: fcos\nversion: 1.5.0\nstorage:\n  flies: []\n":                                                               "4:3: invalid Butane: unused key flies ($.storage.flies)",
		"variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n    - path: /x\n      contents: {local: y}\n":                      "6:25: invalid Butane: ",
		"variant: openshift\nversion: 4.16.0\nmetadata: {name: x, labels: {machineconfiguration.openshift.io/role: worker}}\n": "1:1: invalid Butane: variant openshift",
		"hello":                "0:0: not Butane: ",
		"variant: [\n":         "0:0: not Butane: ",
		"variant: nosuchone\n": "0:0: not Butane: ",
	} {
		got := ""
		if _, e := syntax.Butane([]byte(text)); e != nil {
			got = fmt.Sprintf("%d:%d: %v", e.Line, e.Column, e)
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzButane asserts that what Butane lets pass is Ignition that Ignition lets pass.
func FuzzButane(f *testing.F) {
	f.Add([]byte("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n    - path: /etc/hostname\n      contents: {inline: x}\n"))
	f.Add([]byte("variant: flatcar\nversion: 1.1.0\npasswd: {users: [{name: core}]}\n"))
	f.Add([]byte("variant: openshift\nversion: 4.16.0\nmetadata: {name: x, labels: {machineconfiguration.openshift.io/role: worker}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ign, broken := syntax.Butane(text)
		if broken != nil {
			if broken.Reason == "" {
				t.Error("refused without a reason")
			}
			return
		}
		if broken, _ := syntax.Report(syntax.Ignition, ign); broken != nil {
			t.Errorf("%v in %s", broken, ign)
		}
	})
}

// TestIgnitionWarnings: what Ignition ignores is a warning with its place; an error hides it.
func TestIgnitionWarnings(t *testing.T) {
	t.Parallel()
	broken, warnings := syntax.Report(syntax.Ignition, []byte("{\"ignition\": {\"version\": \"3.3.0\"},\n \"storrage\": {},\n \"storage\": {\"files\": [{\"path\": \"/x\", \"mod\": 420}]}}"))
	got := ""
	for _, w := range warnings {
		got += fmt.Sprintf("%d:%d: %v\n", w.Line, w.Column, w)
	}
	const want = "2:2: Ignition ignores the unknown key storrage ($.storrage)\n3:39: Ignition ignores the unknown key mod ($.storage.files.0.mod)\n"
	if broken != nil || got != want {
		t.Errorf("%v\n%swant\n%s", broken, got, want)
	}
}

// first returns the first error of a document.
func first(f syntax.Format, text []byte) *syntax.Error {
	broken, _ := syntax.Report(f, text)
	return broken
}
