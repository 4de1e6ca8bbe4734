package doctor_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestStatusWhileAddressesAreProbed: that is no failure.
func TestStatusWhileAddressesAreProbed(t *testing.T) {
	t.Parallel()
	s := api.Status{Addresses: []api.Address{{Addr: netip.MustParseAddr("10.0.0.1"), State: api.AddressProbing, Problem: "other machines are asked"}, {Addr: netip.MustParseAddr("10.0.0.2"), State: "missing", Problem: "down"}}}
	want := []doctor.Finding{{Check: "daemon", Subject: "10.0.0.1", Level: doctor.Warn, Text: "is being probed: other machines are asked"}, {Check: "daemon", Subject: "10.0.0.2", Level: doctor.Fail, Text: "down", Fix: "add it to the interface of its network, or let bootlab do that: appliance.addresses: hold"}}
	if got := doctor.FromStatus(s, &lab.Lab{}, nil); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestStatusConditions: each condition that status reports has a line, good or bad, whatever its kind.
func TestStatusConditions(t *testing.T) {
	t.Parallel()
	for _, ok := range []bool{true, false} {
		s := api.Status{}
		for _, kind := range api.ConditionKinds() {
			c := api.Condition{Kind: kind, Name: "name-of-" + kind, OK: ok, Detail: "detail of " + kind}
			if !ok {
				c.Problem = "problem of " + kind
			}
			s.Conditions = append(s.Conditions, c)
		}
		all := doctor.Join(doctor.FromStatus(s, &lab.Lab{}, nil), nil)
		for _, c := range s.Conditions {
			i := slices.IndexFunc(all, func(f doctor.Finding) bool { return strings.Contains(f.Subject, c.Name) })
			if i < 0 || (all[i].Level == doctor.OK) != ok || !strings.Contains(all[i].Text, " of "+c.Kind) && !(ok && c.Kind == api.ConditionHypervisor) {
				t.Errorf("%+v has no line: %+v", c, all)
			}
		}
	}
	// Why the store is degraded has a line each, and the disk of its folder none beside it.
	full := api.Status{
		Store:      api.Store{Folder: "/state", Problems: []string{"stored changes were lost", "the file system of /state is almost full"}},
		Conditions: []api.Condition{{Kind: api.ConditionDisk, Name: "/state", Problem: "almost full"}, {Kind: api.ConditionDisk, Name: "/files", OK: true, Detail: "1 MiB free"}},
	}
	checked := []doctor.Finding{{Check: "state", Subject: "/state", Level: doctor.Fail, Text: "too little"}, {Check: "state", Subject: "/state", Level: doctor.OK, Text: "a synced write took 1ms"}}
	texts := []string{}
	for _, f := range doctor.Join(doctor.FromStatus(full, &lab.Lab{}, nil), checked) {
		texts = append(texts, string(f.Level)+" "+f.Check+" "+f.Subject+" "+f.Text)
	}
	if want := []string{"fail state /state stored changes were lost", "fail state /state the file system of /state is almost full", "ok disk /files 1 MiB free", "ok state /state a synced write took 1ms"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	// A marker that is missing keeps no machine from booting.
	marker := api.Status{Conditions: []api.Condition{{Kind: api.ConditionMarker, Name: "/m", Problem: "was removed"}}}
	if all := doctor.FromStatus(marker, &lab.Lab{}, nil); !slices.Equal(all, []doctor.Finding{{Check: "state", Subject: "/m", Level: doctor.Warn, Text: "was removed"}}) {
		t.Errorf("%+v", all)
	}
	// While install states are lost, machines are not installed: one line, and a failure.
	const lost = "install states were lost, noticed 2026-11-21"
	loss := api.Status{StateLost: lost, Store: api.Store{Folder: "/state"}, Warnings: lab.Problems{{Message: lost}}}
	if all := doctor.FromStatus(loss, &lab.Lab{}, nil); !slices.Equal(all, []doctor.Finding{{Check: "state", Subject: "/state", Level: doctor.Fail, Text: lost}}) {
		t.Errorf("%+v", all)
	}
	// What a check of its own has found says more.
	s := api.Status{Conditions: []api.Condition{{Kind: api.ConditionInterface, Name: "br0", OK: true, Detail: "network n"}}}
	own := []doctor.Finding{{Check: "interfaces", Subject: "br0", Level: doctor.OK, Text: "is up and has 10.0.0.1"}}
	if all := doctor.Join(doctor.FromStatus(s, &lab.Lab{}, nil), own); len(all) != 1 || all[0].Text != own[0].Text {
		t.Errorf("%+v", all)
	}
	// Which server of a rule does not answer says nothing of the rule, nor of another one.
	rules := api.Status{Conditions: []api.Condition{{Kind: api.ConditionUpstream, Name: "dns.forward", OK: true, Detail: "1 of 2 servers answer"}, {Kind: api.ConditionUpstream, Name: "dns.forward_zones.corp.example", Problem: "0 of 1 servers answer"}}}
	silent := []doctor.Finding{{Check: "dns", Subject: "10.0.0.9:53", Level: doctor.Fail, Text: "does not answer questions"}}
	if all := doctor.Join(doctor.FromStatus(rules, &lab.Lab{}, nil), silent); len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

// TestReportedOnce: what a condition says is neither a problem of each server nor a finding of a check, and what to do stands apart.
func TestReportedOnce(t *testing.T) {
	t.Parallel()
	s := api.Status{
		Servers: []api.Server{{Name: "dhcpd", Serving: true, Warnings: []string{"lab0: interface has no carrier: nobody is reached on it"}}, {Name: "httpd", Serving: true, Warnings: []string{"lab0: interface has no carrier: nobody is reached on it", "lab1: other"}}},
		Conditions: []api.Condition{
			api.Condition{Kind: api.ConditionInterface, Name: "lab0"}.With("has no carrier: the bridge has no port", "run ip link set NIC master lab0"),
			api.Condition{Kind: api.ConditionUpstream, Name: "dns.forward"}.With("clients get SERVFAIL: no answer", "set dns.forward to servers that this machine may ask"),
		},
	}
	want := []doctor.Finding{
		{Check: "daemon", Subject: "httpd", Level: doctor.Warn, Text: "degraded: lab1: other"},
		{Check: "interfaces", Subject: "lab0", Level: doctor.Fail, Text: "has no carrier: the bridge has no port", Fix: "run ip link set NIC master lab0"},
		{Check: "dns", Subject: "dns.forward", Level: doctor.Fail, Text: "clients get SERVFAIL: no answer", Fix: "set dns.forward to servers that this machine may ask"},
	}
	own := []doctor.Finding{{Check: "dns", Subject: "10.0.0.9:53", Level: doctor.Fail, Text: "does not answer questions"}}
	if got := doctor.Join(doctor.FromStatus(s, &lab.Lab{}, nil), own); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestStatusSaysWhatToDo: a failure of which the text does not say what to do has that behind it.
func TestStatusSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := api.Status{
		Servers:   []api.Server{{Name: "dhcpd", Addrs: []string{"lab0"}, Err: "lab1: interface does not exist"}, {Name: "dnsd", Err: "stopped"}},
		Addresses: []api.Address{{Addr: netip.MustParseAddr("10.0.0.2"), State: "conflict", Problem: "another machine uses it, too"}},
		Conditions: []api.Condition{
			{Kind: api.ConditionPool, Name: "lan/p", Problem: "full: new machines get no address"}, {Kind: api.ConditionMirror, Name: "debian", Problem: "no upstream answers, so that only cached files are served: 502"},
			{Kind: api.ConditionHypervisor, Name: "kvm1", Problem: "refused"}, {Kind: api.ConditionDisk, Name: "/files", Problem: "was removed while in use"},
			{Kind: api.ConditionCertificate, Name: "web.pem", Problem: "has expired"}, {Kind: api.ConditionTFTP, Name: "transfers", Problem: "full: 9 requests were dropped"},
			{Kind: api.ConditionMachine, Name: "a", Problem: "refused: x.cfg:1:8"}, {Kind: api.ConditionZone, Name: "b.example.", Problem: "not served: b.zone:2:6"},
		},
		Faults: lab.Problems{{Key: "profiles.p", Message: "wrong"}},
	}
	all := doctor.FromStatus(s, &lab.Lab{}, nil)
	if len(all) != 12 {
		t.Errorf("%d findings: %+v", len(all), all)
	}
	for _, f := range all {
		if f.Level != doctor.Fail || f.Fix == "" {
			t.Errorf("%s %s %s: %s -> %q", f.Level, f.Check, f.Subject, f.Text, f.Fix)
		}
	}
}

// TestStatusDegraded: a server that is degraded is shown as status shows it, and what has a line of its own, as hypervisors and panics
// have, once.
func TestStatusDegraded(t *testing.T) {
	t.Parallel()
	s := api.Status{
		Servers: []api.Server{{Name: "dnsd", Serving: true}, {Name: "lbproxy", Serving: true, Warnings: []string{"10.0.0.9 is gone"}}, {Name: "virt", Serving: true, Warnings: []string{"1 of 1 hypervisors do not answer: kvm"}},
			{Name: "httpd", Serving: true, Panics: 1}},
		Balancers:  []api.BalancerHealth{{Name: "raw", Listen: "10.0.0.1:1", Up: 1}, {Name: "web", Listen: "10.0.0.1:80", Down: 2}},
		Conditions: []api.Condition{{Kind: api.ConditionHypervisor, Name: "kvm", Problem: "refused"}},
		Warnings:   lab.Problems{{Message: "httpd: panics contained: 1"}},
	}
	want := []doctor.Finding{
		{Check: "daemon", Subject: "lbproxy", Level: doctor.Warn, Text: "degraded: 10.0.0.9 is gone; balancers without a healthy backend: 1 of 2: web: 0 of 2 healthy"},
		{Check: "hypervisors", Subject: "kvm", Level: doctor.Fail, Text: "refused", Fix: "start libvirt there, or check hypervisors.kvm.uri in the lab file"},
		{Check: "daemon", Subject: "warning", Level: doctor.Warn, Text: "httpd: panics contained: 1"},
	}
	if got := doctor.FromStatus(s, &lab.Lab{}, nil); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
