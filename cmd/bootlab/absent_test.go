package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
)

// TestNamesThatAreNotThere: a command says first that what it names does not exist, and changes nothing.
func TestNamesThatAreNotThere(t *testing.T) {
	h := serve(t)
	h.edit("hosts:\n", fmt.Sprintf("hypervisors:\n  kvm: {uri: %q, bridges: {n: %s}}\nclusters:\n  k8s: {kind: kubernetes, domain: lab.example, address: 10.88.0.30}\nhosts:\n"+
		"  v: {mac: \"52:54:00:00:01:01\", ip: 10.88.0.21, profile: p, vm: {hypervisor: kvm, cpus: 1, memory: 128MiB, disks: [1GiB]}}\n", "test:///default", h.seg.Bridge))
	h.until("reload", func() bool { return strings.Contains(h.run("hosts").out, "10.88.0.21") })
	h.steps(
		step{args: "vm console nope", err: `no host or cluster "nope" in lab`},
		step{args: "vm log vv", err: "did you mean v?"},
		step{args: "down nope", err: `no cluster "nope" in the lab`},
		step{args: "down k8s", err: "--yes shuts down without asking"},
		step{args: "vm network delete kvm nope", err: `there is no libvirt network "nope" of this lab on hypervisor "kvm"`},
		step{args: "install a --done", out: []string{"installed"}},
		step{args: "install a worker-9", err: `no host or cluster "worker-9" in the lab (bootlab hosts and bootlab clusters list them)`, not: []string{"armed"}},
		step{args: "hosts", out: []string{"p installed -"}},
		step{args: "leases --network m", err: `"m" is no network with pools or hosts`},
		step{args: "leases --pool guest", err: `"guest" is no pool: did you mean guests?`},
		step{args: "leases --host somebody", err: `"somebody" is no host of the lab, and no client sends this name`},
		step{args: "leases --network n --pool guests --host a"},
		step{args: "power boot network v", err: "no such VM"},
		step{args: "vm delete v --yes", err: "nothing to delete"},
	)
}

// TestConsoleThatDoesNotOpen: at the end of the input the console fails if it is not open. One that was open once goes on.
func TestConsoleThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		states []string
		want   string
	}{
		{"an error", []string{"connecting", "Domain not found"}, "the console of v is not open: Domain not found"},
		{"being opened", []string{"connecting"}, ""},
		{"off after it was open", []string{"connecting", "connected", "the machine is off"}, ""},
	} {
		for _, first := range []string{"input", "states"} {
			c := &console{host: "v", out: io.Discard, notes: io.Discard}
			var got error
			end := func() { c.send(t.Context(), strings.NewReader(""), func(err error) { got = errors.Join(got, err) }) }
			if first == "input" {
				end()
			}
			for _, s := range tt.states {
				got = errors.Join(got, c.show(api.ConsoleOutput{State: s}))
			}
			if first == "states" {
				end()
			}
			if tt.want == "" && got != nil || tt.want != "" && (got == nil || got.Error() != tt.want) {
				t.Errorf("%s, %s first: %v, want %q", tt.name, first, got, tt.want)
			}
		}
	}
}
