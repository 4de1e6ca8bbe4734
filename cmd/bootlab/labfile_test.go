package main

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/bootlab/bootlab/internal/daemon/plan"
	"github.com/bootlab/bootlab/test/support/golden"
)

const contract = "testdata/contract/lab.yaml" // the example of the lab file's contract, with all files that it names

// labs returns the five labs, one for each seed, and the contract's example, by name.
func labs(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../internal/lab/load/testdata/labs/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d labs, want 5 (%v)", len(files), err)
	}
	all := map[string]string{"contract": contract}
	for _, f := range files {
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = f
	}
	return all
}

func isJSON(t *testing.T, args, out string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(out))
	for n := 0; ; n++ {
		var v any
		switch err := dec.Decode(&v); {
		case err == io.EOF && n > 0:
			return
		case err != nil:
			t.Errorf("bootlab %s: not JSON: %v:\n%s", args, err, out)
			return
		case hasNull(v):
			t.Errorf("bootlab %s: says null: want [] or {}, or no key:\n%s", args, out)
		}
	}
}

// hasNull reports whether something in a value of JSON is null.
func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(v, hasNull)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasNull)
	}
	return false
}

// TestPlanGolden shows everything that is derived from the labs, for review.
func TestPlanGolden(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range labs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := run(t.Context(), "plan", "--secrets", "--lab", file)
			if a.err != nil {
				t.Fatal(a.err)
			}
			golden.Check(t, update, "testdata/plan-"+name+".txt", strings.ReplaceAll(a.out, here, "HERE"))
			asJSON := run(t.Context(), "plan", "--json", "--secrets", "--lab", file)
			isJSON(t, "plan --json", asJSON.out)
			var p plan.Plan
			if err := json.Unmarshal([]byte(asJSON.out), &p); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := p.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a.out, text.String()); diff != "" {
				t.Errorf("--json says something else (-text +json):\n%s", diff)
			}
		})
	}
}

// TestSchema: every lab passes the schema that editors check it with.
func TestSchema(t *testing.T) {
	t.Parallel()
	a := run(t.Context(), "schema")
	if a.err != nil {
		t.Fatal(a.err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(a.out))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lab.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("lab.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range labs(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for what, bad := range map[string]bool{string(text): false, string(text) + "\nbalancerz: {}\n": true} {
			var v any
			if err := yaml.Unmarshal([]byte(what), &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); (err != nil) != bad {
				t.Errorf("%s: %v, want an error: %t", name, err, bad)
			}
		}
	}
}

// write writes a lab file that the contract's example becomes by the edits.
func write(t *testing.T, edit ...string) string {
	t.Helper()
	data, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edit); i += 2 {
		if !strings.Contains(string(data), edit[i]) {
			t.Fatalf("%s does not hold %q", contract, edit[i])
		}
	}
	files, err := filepath.Abs("testdata/contract/files")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lab.yaml")
	text := strings.NewReplacer(append(edit, "files: ./files", "files: "+files)...).Replace(string(data))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContract: what the comments of the contract's example promise is accepted, and shown by plan; what is wrong is
// refused with what would be right.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		edit  []string
		err   string // of check, on stderr
		shows string // by plan
	}{
		{"MAC with hyphens, upper case", []string{"mac: 52:54:00:00:02:01", "mac: 52-54-00-AB-CD-EF"}, "", "52:54:00:ab:cd:ef 192.168.16.21 master-0"},
		{"MAC with both separators", []string{"mac: 52:54:00:00:02:01", "mac: 52:54-00:AB:CD:EF"}, "did you mean 52:54:00:ab:cd:ef?", ""},
		{"MAC prefix", []string{`"52:54:00:*:*:*"`, "52:54:00:00:00:00/24"}, "", "52:54:00:*:*:*"},
		{"MAC prefix inside a byte", []string{`"52:54:00:*:*:*"`, "52:54:00:A0:00:00/28"}, "", "52:54:00:a0:00:00/28"},
		{"MAC pattern with hyphens", []string{`"52:54:00:*:*:*"`, "52-54-00-*-*-*"}, "", "52:54:00:*:*:*"},
		{"MAC pattern with both", []string{`"52:54:00:*:*:*"`, `"52-54:00:*:*:*"`}, "is not a MAC pattern: want", ""},
		{"MAC pattern with a hole", []string{`"52:54:00:*:*:*"`, `"52::54:00:*:*:*"`}, "is not a MAC pattern: want", ""},
		{"MAC pattern with half a byte", []string{`"52:54:00:*:*:*"`, `"52:54:0:*:*:*"`}, "is not a MAC pattern: want", ""},
		{"store in a file", []string{"store: bolt ", "store: file "}, "", "lab telco"},
		{"store of another kind", []string{"store: bolt ", "store: redis #"}, `"redis" is not known: want file or bolt`, ""},
		{"store in etcd, no list", []string{"store: bolt ", "store: {etcd: https://10.0.0.1:2379} #"}, "the lab file has 1 error", ""},
		{"duration", []string{"lease: 12h", "lease: 90m"}, "", "network baremetal lease 1h30m"},
		{"duration without unit", []string{"lease: 12h", "lease: 12"}, "want a unit too, as in 12s, 12m or 12h", ""},
		{"size", []string{"memory: 16GiB", "memory: 512MiB"}, "", `<memory unit="KiB">524288</memory>`},
		{"size without unit", []string{"memory: 16GiB", "memory: 16"}, "did you mean 16GiB?", ""},
		{"option in hex", []string{"hex:0104c0a81001", "hex:01:04:c0"}, "", "option 43 hex:0104c0"},
		{"option as text", []string{`"66": "text:192.168.16.1"`, `"66": "text:hello"`}, "", "option 66 text:hello"},
		{"option as bare number", []string{`"150": 192.168.16.1`, `"150": 7`}, "want addresses, hex:0104c0a81001, text:7", ""},
		{"option with a key", []string{`"150": 192.168.16.1`, `"3": 192.168.16.1`}, "option 3 has a key of its own: want router", ""},
		{"host that others serve", []string{"52-54-00-00-02-0A, ip", "52-54-00-00-02-0A, dhcp: off, ip"}, "", "host worker-0 dhcp off"},
		{"option of a pool with a key", []string{"        lease: 1h", "        lease: 1h\n        options: {\"3\": 192.168.16.253}"}, "", "option 3 192.168.16.253"},
		{"uefi", []string{"firmware: bios", "firmware: uefi"}, "", "UEFI x64 boot/52-54-00-00-02-01/ipxe.efi"},
		{"uefi-secure", []string{"firmware: bios", "firmware: uefi-secure"}, "", "secure-boot"},
		{"efi", []string{"firmware: bios", "firmware: efi"}, `"efi" is not known: did you mean uefi?`, ""},
		{"ipmi", []string{`redfish: "https://10.0.9.21"`, "ipmi: 10.0.9.21"}, "", "host master-0 ipmi 10.0.9.21"},
		{"both BMCs", []string{`redfish: "https://10.0.9.21"`, `redfish: "https://10.0.9.21", ipmi: 10.0.9.21`}, "want one of the two", ""},
		{"password in the file", []string{"password_file: secrets/bmc", "password: secret"}, `unknown key "password": did you mean password_file?`, ""},
		{"libvirt network", []string{"bridges: {baremetal: br0}", "bridges: {baremetal: {network: lab}}"}, "", `<source network="lab">`},
		{"bridge of no network", []string{"bridges: {baremetal: br0}", "bridges: {baremetall: br0}"}, `did you mean baremetal?`, ""},
		{"absolute alias", []string{"aliases: [etcd-0]", "aliases: [etcd-0, www.example.org.]"}, "", "www.example.org. A 192.168.16.21"},
		{"send_proxy", []string{"send_proxy: off", "send_proxy: v2"}, "", "balancer router-http send_proxy v2"},
		{"no such profile", []string{"profile: discover", "profile: discovery"}, `did you mean discover?`, ""},
		{"no such hypervisor", []string{"hypervisor: kvm1", "hypervisor: kvm2"}, `did you mean kvm1?`, ""},
		{"no such backend", []string{"worker-0:80", "worker-7:80"}, `did you mean worker-0?`, ""},
		{"overlapping pools", []string{"192.168.16.200-", "192.168.16.135-"}, "overlaps 192.168.16.130-192.168.16.135 of pool bootstrap", ""},
		{"pool over a reservation", []string{"ip: 192.168.16.24", "ip: 192.168.16.131"}, "", "192.168.16.131 worker-0"},
		{"host outside", []string{"ip: 192.168.16.24", "ip: 192.168.17.24"}, "192.168.17.24 is outside every network: want an address inside 192.168.16.0/24", ""},
		{"cluster outside", []string{"    address: 192.168.16.10 ", "    address: 192.168.17.10 "}, "192.168.17.10 is outside every network: want an address inside 192.168.16.0/24", ""},
		{"ingress outside", []string{"    ingress: 192.168.16.11 ", "    ingress: 192.168.17.11 "}, "192.168.17.11 is outside every network: want an address inside 192.168.16.0/24", ""},
		{"cluster on the router", []string{"    address: 192.168.16.10 ", "    address: 192.168.16.254 "}, "192.168.16.254 is the router of network baremetal", ""},
		{"cluster on the broadcast address", []string{"    address: 192.168.16.10 ", "    address: 192.168.16.255 "}, "192.168.16.255 is the broadcast address of network baremetal", ""},
		{"route by nowhere", []string{"    routes: []", "    routes: [{to: 10.7.0.0/16, via: 10.1.1.1}]"}, "10.1.1.1 is outside every network", ""},
		{"balancer on a host", []string{"listen: 192.168.16.10:80", "listen: 192.168.16.21:80"}, "192.168.16.21 belongs to host master-0", ""},
		{"one MAC twice", []string{"mac: 52-54-00-00-02-0A", "mac: 52-54-00-00-02-01"}, "52:54:00:00:02:01 is already used by host master-0", ""},
		{"one IP twice", []string{"ip: 192.168.16.24", "ip: 192.168.16.25"}, "192.168.16.25 is already used by host worker-0", ""},
		{"one name twice", []string{"aliases: [etcd-0]", "aliases: [worker-0]"}, "want another alias", ""},
		{"two clusters, one address", []string{"\ndns:\n", "\n  second: {kind: kubernetes, address: 192.168.16.10}\n\ndns:\n"}, "want another one, or sni: true in both", ""},
		{"no such value in an argument", []string{"args: [console=ttyS0]\n    config", "args: [\"{{.Host.Vars.nope}}\"]\n    config"}, `{{.Host.Vars.nope}} is not set: want vars: {nope: …} for the host`, ""},
		{"no such value for a machine of a pool", []string{"args: [console=ttyS0]}", "args: [\"{{.Host.Vars.rack}}\"]}"}, "profiles.discover", ""},
		{"an address that is not set", []string{"args: [console=ttyS0]\n    config", "args: [\"{{.Host.IP6}}\"]\n    config"}, ".Host.IP6", ""},
		{"everything at once", []string{"subnet:", "subnett:", "cpus: 8", "cpus: many", "roundrobin", "rr"}, "the lab file has 3 errors", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			file := write(t, tc.edit...)
			a := run(t.Context(), "check", "--lab", file)
			if tc.err == "" {
				step{args: "check"}.check(t, a)
				step{args: "plan", out: []string{tc.shows}}.check(t, run(t.Context(), "plan", "--lab", file))
				return
			}
			if a.err == nil || !strings.Contains(a.stderr+a.err.Error(), tc.err) {
				t.Errorf("check says:\n%s%v\nwant %q", a.stderr, a.err, tc.err)
			}
			if !strings.Contains(a.stderr, file+":") {
				t.Errorf("check names no place:\n%s", a.stderr)
			}
		})
	}
}

// TestEtcdStore: check refuses a store that serve does not support.
func TestEtcdStore(t *testing.T) {
	t.Parallel()
	file := write(t, "store: bolt ", "store: {etcd: [https://10.0.0.1:2379], prefix: /x} #")
	want := file + ":7:10: appliance.store.etcd: is not supported yet: leave store out"
	if a := run(t.Context(), "check", "--lab", file); a.err == nil || !strings.Contains(a.stderr, want) {
		t.Errorf("check says:\n%s%v\nwant %q", a.stderr, a.err, want)
	}
	step{args: "plan", out: []string{"lab telco"}}.check(t, run(t.Context(), "plan", "--lab", file))
}

// TestDocumentsOfEachHost: a document that one host alone boots is rendered at check too.
func TestDocumentsOfEachHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lab.yaml": `
version: 1
domain: a.example
networks: {n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}}
profiles: {p: {kernel: k, config: "{{.Host.Name}}.ign"}}
hosts:
  x: {mac: 52:54:00:00:00:01, ip: 10.0.0.5, role: w, profile: p}
  y: {mac: 52:54:00:00:00:02, ip: 10.0.0.6, role: w, profile: p}
`, "files/k": "", "files/x.ign": `{"ignition": {"version": "3.4.0"}}`, "files/y.ign": `{"a": "{{.Host.Vars.nope}}"}`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	step{args: "check", err: "the lab file has 1 error", out: []string{"files/y.ign:1:15: ", "for host y", "nope"}}.check(t, run(t.Context(), "check", "--lab", dir))
}

// TestStrict: a file that is not there is a warning, and an error under --strict.
func TestStrict(t *testing.T) {
	t.Parallel()
	if a := run(t.Context(), "check", "--strict", "--lab", contract); a.err != nil || a.stderr != "" {
		t.Errorf("the example has all its files: %v\n%s", a.err, a.stderr)
	}
	file := write(t) // whose zones and secrets are not beside it
	for _, want := range []string{"/zones/legacy.example.zone: no such file or directory", "secrets/bmc: file not found"} {
		step{args: "check", out: []string{"warning: " + file, want, "is valid"}}.check(t, run(t.Context(), "check", "--lab", file))
		step{args: "check --strict", err: "; a daemon applies it, and serves everything else until they are fixed", out: []string{want}, not: []string{"warning", "is valid"}}.check(t, run(t.Context(), "check", "--strict", "--lab", file))
	}
}

// TestMessages: check shows the line of a mistake with a mark under the value, and what Ignition would ignore in a document.
func TestMessages(t *testing.T) {
	t.Parallel()
	const text = `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, lease: 12h}}
profiles:
  p: {os: coreos, kernel: k, initrd: [i], rootfs: r, config: c.ign}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.5, profile: p}
`
	file := editedLab(t, text)
	writeFiles(t, filepath.Dir(file), map[string]string{"files/k": "", "files/i": "", "files/r": "", "files/c.ign": "{\"ignition\": {\"version\": \"3.3.0\"},\n \"storrage\": {}}"})
	at := filepath.Join(filepath.Dir(file), "files/c.ign")
	if a := run(t.Context(), "check", "--lab", file); a.err != nil || a.stderr != "warning: "+at+":2:2: profiles.p.config: for host a: Ignition ignores the unknown key storrage ($.storrage)\n" {
		t.Errorf("a key that Ignition does not know: %v\n%s", a.err, a.stderr)
	}
	file = editedLab(t, text, "lease: 12h", "lease: 43200", "os: coreos", "os: rhcos")
	writeFiles(t, filepath.Dir(file), map[string]string{"files/k": "", "files/i": "", "files/r": "", "files/c.ign": `{"ignition": {"version": "3.3.0"}}`})
	want := file + ":3:63: networks.n.lease: \"43200\" is not a duration: did you mean 12h?\n    3 | networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1, lease: 43200}}\n      |                                                               ^^^^^\n" +
		file + ":5:11: profiles.p.os: \"rhcos\" is not known: did you mean coreos?\n    5 |   p: {os: rhcos, kernel: k, initrd: [i], rootfs: r, config: c.ign}\n      |           ^^^^^\n"
	if a := run(t.Context(), "check", "--lab", file); a.err == nil || a.err.Error() != "the lab file has 2 errors" || a.stderr != want {
		t.Errorf("two mistakes: %v\n%s\nwant\n%s", a.err, a.stderr, want)
	}
}

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	type problem struct {
		Pos struct {
			File         string
			Line, Column int
		}
		Key, Message, Hint, Path, Source string
	}
	type result struct {
		OK               bool
		Errors, Warnings []problem
	}
	for _, tc := range []struct {
		name, file string
		ok         bool
		errors     int
		key        string
	}{
		{"good", contract, true, 0, ""},
		{"two errors", write(t, "cpus: 8", "cpus: many", "firmware: bios", "firmware: x"), false, 2, "hosts.master-0.vm.cpus"},
		{"no file", "/nowhere/lab.yaml", false, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := run(t.Context(), "check", "--json", "--lab", tc.file)
			if (a.err == nil) != tc.ok {
				t.Errorf("error %v", a.err)
			}
			var v result
			dec := json.NewDecoder(strings.NewReader(a.out))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%v: %s", err, a.out)
			}
			if v.OK != tc.ok || len(v.Errors) != tc.errors || strings.Contains(a.out, `"Key"`) || strings.Contains(a.out, "null") {
				t.Fatalf("%s", a.out)
			}
			if tc.key != "" && (v.Errors[0].Key != tc.key || v.Errors[0].Pos.File != tc.file || v.Errors[0].Pos.Line == 0 || v.Errors[0].Message == "") {
				t.Errorf("%s", a.out)
			}
		})
	}
}

// TestPlanHidesDocuments: config documents hold keys and passwords, and are shown to who asks for them by name alone.
func TestPlanHidesDocuments(t *testing.T) {
	t.Parallel()
	for _, s := range []step{
		{args: "plan master-0", out: []string{"CONFIG master-0 475 bytes, hidden; bootlab plan --secrets shows them"}, not: []string{`{"ignition"`}},
		{args: "plan", out: []string{"CONFIG worker-0 33 bytes, hidden"}, not: []string{`{"ignition"`}},
		{args: "plan --json", json: true, out: []string{`"config_note": "33 bytes, hidden`}, not: []string{`{\"ignition`}},
		{args: "plan master-0 --secrets", out: []string{`{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"x.service","contents":"[Unit]\nDescription=master-0`}, not: []string{"hidden"}},
		{args: "plan --secrets --json", json: true, out: []string{`{\"ignition`}},
	} {
		t.Run(s.args, func(t *testing.T) {
			t.Parallel()
			s.check(t, run(t.Context(), append(strings.Fields(s.args), "--lab", contract)...))
		})
	}
}

// TestCheckAllAtOnce: check reports mistakes of every kind at once, those in zones, zone files and documents beside those of the lab.
func TestCheckAllAtOnce(t *testing.T) {
	t.Parallel()
	const text = `version: 1
domain: a.example
networks: {n: {subnet: 10.0.0.0/24, address: 10.0.0.1}}
profiles: {p: {kernel: k, config: y.ign}}
hosts: {y: {mac: 52:54:00:00:00:02, ip: 10.0.0.6, profile: p}}
dns:
  zones:
    b.example: {records: ["@ A 10.0.0.300"]}
    c.example: {file: c.zone}
`
	for _, tt := range []struct {
		name, lab string
		want      []string
	}{
		{"of the lab, a record and a zone file", strings.Replace(text, "ip: 10.0.0.6", "ip: 10.0.0.600", 1), []string{"hosts.y.ip", "dns.zones.b.example", "c.zone:2:"}},
		{"a record, a zone file and a document", text, []string{"files/y.ign:1:", "dns.zones.b.example", "c.zone:2:"}},
		{"a store, a zone file and a document", "appliance: {store: {etcd: ['https://10.0.0.1:2379']}}\n" + strings.Replace(text, "10.0.0.300", "10.0.0.3", 1),
			[]string{"files/y.ign:1:", "appliance.store.etcd", "c.zone:2:"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"lab.yaml": tt.lab, "files/k": "", "files/y.ign": `{"a": "{{.Host.Vars.nope}}"}`, "c.zone": "@ A 10.0.0.9\nwww A 10.0.0.300\n"} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			a := run(t.Context(), "check", "--lab", filepath.Join(dir, "lab.yaml"))
			if want := "the lab file has 3 errors"; a.err == nil || !strings.Contains(a.err.Error(), want) {
				t.Errorf("%v, want %s", a.err, want)
			}
			for _, want := range tt.want {
				if !strings.Contains(a.stderr, want) {
					t.Errorf("check says:\n%s\nwant %q", a.stderr, want)
				}
			}
		})
	}
}

// TestExamplesCheck: check accepts every file of configs, which README offers to start from.
func TestExamplesCheck(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		step{args: "check", out: []string{"is valid"}}.check(t, run(t.Context(), "check", "--lab", file))
	}
}

// TestMissingInterface: an interface that does not exist is a warning where one of the others does, and with --live everywhere.
func TestMissingInterface(t *testing.T) {
	t.Parallel()
	const missing = "warning: "
	file := filepath.Join(t.TempDir(), "lab.yaml")
	for _, tt := range []struct{ other, args, want string }{
		{"bootlabx2", "check", ""},
		{"bootlabx2", "check --live", "networks.a.interface: bootlabx1 does not exist on this machine"},
		{"lo", "check", "networks.a.interface: bootlabx1 does not exist on this machine"},
	} {
		text := "version: 1\ndomain: a.example\nnetworks:\n  a: {subnet: 10.0.0.0/24, interface: bootlabx1, address: 10.0.0.1}\n  b: {subnet: 127.0.0.0/8, interface: " + tt.other + ", address: 127.0.0.1}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a := run(t.Context(), append(strings.Fields(tt.args), "--lab", file)...)
		if tt.want == "" && strings.Contains(a.stderr, missing) || !strings.Contains(a.stderr, tt.want) || a.err != nil {
			t.Errorf("%s beside %s says:\n%s%v\nwant %q", tt.args, tt.other, a.stderr, a.err, tt.want)
		}
	}
}
