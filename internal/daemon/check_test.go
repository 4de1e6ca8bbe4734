package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestMissingFilesOfDNS: each file that DNS lacks is one warning, which says what it means; with strict an error.
func TestMissingFilesOfDNS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"lab.yaml": `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, dhcp: off}}
dns:
  forward: [{address: 10.0.0.53, tls: dns.example, ca_file: gone.ca}]
  keys: {ns: {secret_file: gone.key}}
  zones: {gone.example: {file: gone.zone}}
`})
	want := []string{
		"dns.forward: 10.0.0.53:853#dns.example is not asked: open " + dir + "/gone.ca: no such file or directory",
		"dns.keys.ns.secret_file: requests with the key ns. are refused: open " + dir + "/gone.key: no such file or directory",
		"dns.zones.gone.example.file: zone gone.example. answers SERVFAIL: open " + dir + "/gone.zone: no such file or directory",
	}
	_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
	if err != nil || len(found.Faults) > 0 {
		t.Fatal(err, found.Faults)
	}
	wantEach(t, "warnings", found.Warnings.Error(), want)
	if _, found, err = daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Strict); err != nil || len(found.Warnings) > 0 {
		t.Errorf("strict: %v, warnings %v", err, found.Warnings)
	}
	wantEach(t, "errors", found.Faults.Error(), want)
}

// TestMissingZoneServed: a zone whose file is missing is shown as one that has an error, until it exists.
func TestMissingZoneServed(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.3.1")
	path := filepath.Join(filepath.Dir(r.lab), "gone.zone")
	r.write(r.read() + "\ndns: {zones: {gone.example: {file: gone.zone}}}\n")
	r.start()
	all, failed := r.status().ConditionsOf(api.ConditionZone)
	if len(all) != 1 || len(failed) != 1 || failed[0].Name != "gone.example." || !strings.Contains(failed[0].Problem, "no such file") {
		t.Errorf("%+v", all)
	}
	if got := r.get("http://10.125.3.1:9680/readyz"); !strings.Contains(got, "zones: failed: 1 of 1") {
		t.Errorf("/readyz:\n%s", got)
	}
	r.until("one warning in the log", func() bool { return strings.Count(r.log.String(), "gone.zone") == 1 })
	if err := os.WriteFile(path, []byte("@ NS ns\nns A 10.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.until("the zone to be served", func() bool { all, _ := r.status().ConditionsOf(api.ConditionZone); return len(all) == 0 })
}

// TestWarningsBesideErrors: an error of the lab hides no warning about another part of it.
func TestWarningsBesideErrors(t *testing.T) {
	t.Parallel()
	const text = `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, dhcp: off}}
profiles: {p: {os: OS, tree: t}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, cluster: k, role: control-plane}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.12, cluster: k, role: control-plane}
clusters: {k: {kind: kubernetes, address: 10.0.0.10}}
`
	for _, tt := range []struct {
		name, os, err string
		strict        bool
	}{
		{"a wrong value", "debain", "profiles.p.os", false},
		{"a missing file", "debian", "file not found", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"lab.yaml": strings.Replace(text, "OS", tt.os, 1)})
			_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Strictness(tt.strict))
			if errs := errors.Join(err, found.Faults.Err()); errs == nil || !strings.Contains(errs.Error(), tt.err) {
				t.Errorf("%v, want %q", errs, tt.err)
			}
			if got := found.Warnings.Error(); !strings.Contains(got, "etcd with 2 members") {
				t.Errorf("warnings: %q", got)
			}
		})
	}
}

// TestBesideErrors: errors of the lab hide neither an error in a template, nor in a zone file, nor that one is missing; and of hosts that they
// concern nothing is reported that follows from them.
func TestBesideErrors(t *testing.T) {
	t.Parallel()
	const text = `version: 1
domain: lab.example
networks:
  n: {subnet: 10.0.0.0/24, dhcp: off}
  m: {subnet: 10.1.0.0/24, dhcp: off, routes: [{to: 10.2.0.0/16, via: MVIA}]}
profiles:
  p: {kernel: k, args: ["c={{.ConfigURL}}"], config: a.cfg}
  q: {kernel: k, args: ["r={{.Network.Router}}", "s={{.Host.Serial}}"]}
  r: {kernel: k, args: ["BROKEN"]}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p}
  b: {mac: 52:54:00:00:00:02, ip: 10.1.0.12, profile: q}
  c: {mac: 52:54:00:00:00:03, ip: CIP, profile: q}
  d: {mac: 52:54:00:00:00:04, ip: 10.0.0.14, profile: r}
dns: {zones: {bad.example: {file: bad.zone}, gone.example: {file: gone.zone}, x.example: {records: ["RECORD"]}}}
`
	right := map[string]string{"MVIA": "10.1.0.1", "CIP": "10.0.0.13", "BROKEN": "x", "RECORD": "www A 10.0.0.1"}
	for _, tt := range []struct {
		name, key, value string
		errors           []string // beside those of a.cfg and bad.zone
		hidden           string
	}{
		{"nothing", "", "", nil, ""},
		{"a host", "CIP", "10.0.0.300", []string{"hosts.c.ip"}, "hosts c"},
		{"a network", "MVIA", "10.9.0.1", []string{"networks.m"}, "for b"},
		{"a profile", "BROKEN", "{{.Nonsense", []string{"profiles.r.args[0]"}, "for d"},
		{"a record", "RECORD", "www A 10.0.0.300", []string{"dns.zones"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "files"), 0o755); err != nil {
				t.Fatal(err)
			}
			lab := text
			for key, value := range right {
				if key == tt.key {
					value = tt.value
				}
				lab = strings.Replace(lab, key, value, 1)
			}
			writeFiles(t, dir, map[string]string{"lab.yaml": lab, "files/a.cfg": "{{.Host.Nonsense}}", "bad.zone": "@ NS ns\nns A nonsense\n"})
			_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
			all := ""
			if errs := errors.Join(err, found.Faults.Err()); errs != nil {
				all = errs.Error()
			}
			for _, want := range append(tt.errors, "Nonsense", "bad.zone:2") {
				if !strings.Contains(all, want) {
					t.Errorf("errors without %q:\n%s", want, all)
				}
			}
			if tt.hidden != "" && strings.Contains(all, tt.hidden) {
				t.Errorf("errors with what follows from the first:\n%s", all)
			}
			if got := found.Warnings.Error(); strings.Count(got, "gone.zone") != 1 {
				t.Errorf("warnings: %q", got)
			}
		})
	}
}

// TestOneMistakeOnce: a value that hosts and pools lack in a template is one error, which names all of them, also beside another error.
func TestOneMistakeOnce(t *testing.T) {
	t.Parallel()
	const want = "profiles.p.kernel: for hosts a, b and machines of pool n/g: {{.Host.Vars.rack}} is not set"
	for record, errs := range map[string]int{"www A 10.0.0.1": 1, "www A 10.0.0.300": 2} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"lab.yaml": `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, dhcp: off, pools: {g: {range: 10.0.0.100-10.0.0.110, profile: p}}}}
profiles: {p: {kernel: "k-{{.Host.Vars.rack}}"}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.12, profile: p}
  c: {mac: 52:54:00:00:00:03, ip: 10.0.0.13, profile: p, vars: {rack: r1}}
dns: {zones: {x.example: {records: ["` + record + `"]}}}
`})
		_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
		all := errors.Join(err, found.Faults.Err())
		if all == nil || !strings.Contains(all.Error(), want) || strings.Count(all.Error(), "\n") != errs-1 {
			t.Errorf("%v\nwant %d errors, one of them %s", all, errs, want)
		}
	}
}

// TestWarningsOfParts: check has the warnings of all tables, those of files that templates name included, once each, also beside an error of one of them.
func TestWarningsOfParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, record, kernel string }{
		{"valid", "www A 10.0.0.1", "q"}, {"an error in a zone", "www A 10.0.0.300", "q"}, {"an error in a path", "www A 10.0.0.1", "../{{.Host.Role}}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"lab.yaml": `version: 1
domain: lab.example
networks: {n: {subnet: 10.0.0.0/24, dhcp: off}}
profiles: {p: {kernel: "k-{{.Host.Name}}"}, q: {kernel: "` + tt.kernel + `"}}
hosts:
  a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p}
  b: {mac: 52:54:00:00:00:02, ip: 10.0.0.12, profile: q, role: worker}
dns: {keys: {ns: {secret_file: gone.key}}, zones: {gone.example: {file: gone.zone}, x.example: {records: ["` + tt.record + `"]}}}
`})
			want := []string{"k-a: file not found", "gone.zone: no such file", "gone.key: no such file"}
			if tt.name == "an error in a zone" {
				want = want[:2] // of the keys nothing is known without the table
			} else if tt.name != "valid" {
				want = want[1:]
			}
			_, lenient, _ := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
			_, strict, _ := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Strict)
			for _, what := range want {
				if strings.Count(lenient.Warnings.Error(), what) != 1 || strings.Count(strict.Faults.Error(), what) != 1 {
					t.Errorf("%q is not there once:\nwarnings: %v\nwith strict, errors: %v", what, lenient.Warnings, strict.Faults)
				}
			}
		})
	}
}

// TestFollowingErrors: beside the errors of a lab, check finds none in templates that follow from them, and is stopped by none.
func TestFollowingErrors(t *testing.T) {
	t.Parallel()
	labs, err := filepath.Glob("../lab/load/testdata/invalid-*.yaml")
	if err != nil || len(labs) == 0 {
		t.Fatalf("%d labs: %v", len(labs), err)
	}
	for _, name := range labs {
		if _, found, err := daemon.Check(name, daemon.Lenient); err == nil || len(found.Faults) > 0 {
			t.Errorf("%s: %v, and beside it %v", name, err, found.Faults)
		}
	}
}

// TestCopiesOfDocuments: check warns about a copy of a document that everybody can fetch.
func TestCopiesOfDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"files/docs", "files/public"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFiles(t, dir, map[string]string{
		"lab.yaml": "version: 1\ndomain: lab.example\nnetworks: {n: {subnet: 10.0.0.0/24, dhcp: off}}\nprofiles: {p: {kernel: k, config: \"docs/{{.Host.Name}}.cfg\"}}\n" +
			"hosts: {a: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p}}\n",
		"files/docs/a.cfg": "rootpw secret\n", "files/public/a.cfg.bak": "rootpw secret\n", "files/k": "k",
	})
	_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Strict)
	if want := filepath.Join(dir, "files/public/a.cfg.bak") + ": everybody can fetch it, and it has the content of "; err != nil || !strings.Contains(found.Warnings.Error(), want) {
		t.Errorf("%v, warnings %q, want %s", err, found.Warnings.Error(), want)
	}
}

// TestForgottenInterface: a network without interface whose address an interface of this machine has is reported by check, the log, the status and,
// once a host has asked there, by why; machines with MACs of no host are in the log once.
func TestForgottenInterface(t *testing.T) {
	netns.Need(t, "root", "ip", "udhcpc")
	r := newRig(t, "10.78.0.1")
	r.write(strings.Replace(r.read(), ", interface: "+r.seg.Bridge, "", 1))
	want := "networks.n.interface: is missing, and " + r.seg.Bridge + " has the network's address 10.78.0.1: want interface: " + r.seg.Bridge + "; without it machines are served only through a relay agent"
	_, found, err := daemon.Check(r.lab, daemon.Lenient)
	if err != nil || !strings.Contains(found.Warnings.Error(), want) {
		t.Errorf("check: %v, warnings %v", err, found.Warnings)
	}
	r.start()
	if w := r.status().Warnings.Error(); !strings.Contains(w, want) {
		t.Errorf("status warns %q", w)
	}
	r.until("the log has the warning", func() bool { return strings.Contains(r.log.String(), want) })
	for _, mac := range []string{"52:54:00:00:00:01", "52:54:00:00:00:77", "52:54:00:00:00:78"} {
		_ = r.seg.NewClient(t, mac).Command(t.Context(), "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "2", "-T", "1", "-s", "/bin/true").Run()
	}
	r.until("the refusal of host a", func() bool {
		why, err := r.client.Why(t.Context(), "a")
		return err == nil && why.Reason == event.NoNetwork && !strings.Contains(why.Cause, "it is off")
	})
	r.until("the others in the log", func() bool { return strings.Contains(r.log.String(), "DHCPDISCOVER in no") })
	if n := strings.Count(r.log.String(), "DHCPDISCOVER in no network of the lab"); n != 1 {
		t.Errorf("%d lines of packets in no network, want 1:\n%s", n, r.log)
	}
}

// TestCertificatesBesideErrors: an error of the lab hides none of its certificates.
func TestCertificatesBesideErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"web.pem": "no certificate\n", "lab.yaml": `version: 1
domain: lab.example
balancers:
  a: {listen: "10.0.0.1:443", mode: http, tls: {certificates: [web.pem]}, backends: ["10.0.0.9:80"]}
  b: {listen: "10.0.0.1:81", mode: htpt, backends: ["10.0.0.9:80"]}
`})
	_, found, err := daemon.Check(filepath.Join(dir, "lab.yaml"), daemon.Lenient)
	if err == nil || !strings.Contains(err.Error(), "balancers.b.mode") {
		t.Errorf("error %v, want one of balancers.b.mode", err)
	}
	if got := found.Faults.Error(); !strings.Contains(got, "balancers.a.tls.certificates[0]") {
		t.Errorf("faults %q, want one of the certificate", got)
	}
}

// TestProgramNotBuiltIn: a pool that boots machines for which no boot program is built in is a warning, unless the folder of --firmware has it.
func TestProgramNotBuiltIn(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.17.1")
	r.write(strings.Replace(strings.Replace(r.read(), "address: 10.125.17.1}", `address: 10.125.17.1, pools: {
    riscv: {range: 10.125.17.130-10.125.17.131, arch: [uefi-riscv64, uefi-x64], profile: p}, arm: {range: 10.125.17.132-10.125.17.133, arch: 10}}}`, 1),
		"\nhosts:", "\nprofiles: {p: {kernel: k}}\nhosts:", 1))
	r.start()
	warned := func(program string) bool {
		return strings.Contains(r.log.String(), "machines of a pool cannot boot") && strings.Contains(r.log.String(), program)
	}
	r.until("a warning", func() bool { return warned("ipxe-riscv64.efi") })
	if warned("ipxe-arm32.efi") { // that pool boots nothing
		t.Errorf("log:\n%s", r.log)
	}
}

// TestBrokenDocument: a document with an error is an error for the log, status, doctor and bootlab why, as it is for bootlab check.
func TestBrokenDocument(t *testing.T) {
	netns.Need(t, "root", "ip")
	r := newRig(t, "10.125.5.1")
	dir := filepath.Join(filepath.Dir(r.lab), "files")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"a.cfg": "{{.Host.Nonsense}}"})
	r.write(r.read() + "  d: {mac: \"52:54:00:00:00:04\", ip: 10.125.5.14, profile: broken}\nprofiles: {broken: {kernel: public/k, args: [\"c={{.ConfigURL}}\"], config: a.cfg}}\n")
	r.start()
	const what = "Nonsense"
	_, found, err := daemon.Check(r.lab, daemon.Lenient)
	if err != nil || !strings.Contains(found.Faults.Error(), what) {
		t.Errorf("check: %v, %v", err, found.Faults)
	}
	s := r.status()
	if !strings.Contains(s.Faults.Error(), what) || strings.Contains(s.Warnings.Error(), what) {
		t.Errorf("status: errors %v, warnings %v", s.Faults, s.Warnings)
	}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, what) && !strings.Contains(line, "level=ERROR") {
			t.Errorf("log: %s", line)
		}
	}
	if !strings.Contains(r.log.String(), what) {
		t.Error("the log does not have the error")
	}
	for _, f := range doctor.FromStatus(s, &lab.Lab{}, nil) {
		if strings.Contains(f.Text, what) && f.Level != doctor.Fail {
			t.Errorf("doctor: %+v", f)
		}
	}
}
