package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Condition is one thing beside the servers that was measured: an interface, a hypervisor, a pool, a disk, a certificate, the DNS upstreams of a rule,
// other DHCP servers on an interface, a reserved or leased address that another machine uses, a mirror without an upstream that answers, TFTP without a free transfer, a
// marker of the state that is missing; or a machine or zone that is refused for an error of its own.
type Condition struct {
	Kind    string    `json:"kind"` // one of ConditionKinds
	Name    string    `json:"name"`
	OK      bool      `json:"ok"`
	Since   time.Time `json:"since,omitzero"`    // of the state, or of the measurement; zero: not known
	Detail  string    `json:"detail,omitempty"`  // what was measured
	Problem string    `json:"problem,omitempty"` // what is wrong, and Fix, if it is known; empty: nothing
	Fix     string    `json:"fix,omitempty"`     // what to do about it, with which Problem ends then

	// Cause is the error in the lab file, a document or a file that it names, of a machine, zone or certificate that is not OK.
	Cause *lab.Problem `json:"cause,omitempty"`
}

// The kinds of a Condition.
const (
	ConditionInterface   = "interface"
	ConditionHypervisor  = "hypervisor"
	ConditionPool        = "pool"
	ConditionDisk        = "disk"
	ConditionCertificate = "certificate"
	ConditionUpstream    = "dns-upstream" // of dns.forward or dns.forward_zones: a rule of which one has to answer
	ConditionMachine     = "machine"
	ConditionZone        = "zone"
	ConditionDHCPServer  = "dhcp-server" // another one, named by the interface
	ConditionReserved    = "reservation" // whose address another machine uses
	ConditionLease       = "lease"       // of a pool, likewise
	ConditionMirror      = "mirror"      // of which no upstream answers
	ConditionTFTP        = "tftp"        // whose transfers are all in use
	ConditionMarker      = "marker"      // of the state, that would not show its loss
)

// ConditionKinds returns all kinds, in the order in which they are shown.
func ConditionKinds() []string {
	return []string{ConditionInterface, ConditionHypervisor, ConditionPool, ConditionDisk, ConditionCertificate, ConditionUpstream, ConditionMachine,
		ConditionZone, ConditionDHCPServer, ConditionReserved, ConditionLease, ConditionMirror, ConditionTFTP, ConditionMarker}
}

// The states of a Condition, the same in bootlab status, /readyz, metrics and the dashboard.
const (
	ConditionOK     = "ok"
	ConditionFailed = "failed"
)

// State returns the state in one word.
func (c Condition) State() string {
	if c.OK {
		return ConditionOK
	}
	return ConditionFailed
}

// With returns c with a problem and what to do about it.
func (c Condition) With(problem, fix string) Condition {
	c.Problem, c.Fix = problem+": "+fix, fix
	return c
}

// Wrong returns what is wrong, without what to do.
func (c Condition) Wrong() string { return strings.TrimSuffix(c.Problem, ": "+c.Fix) }

// SameProblem reports whether two machines are refused for one error, which names them: texts show it once.
func (c Condition) SameProblem(o Condition) bool {
	return o.Cause != nil && c.Kind == o.Kind && c.Has(o.Cause)
}

// Has reports whether p is the error for which the condition is not OK. That of a certificate is the same at each key that names its file.
func (c Condition) Has(p *lab.Problem) bool {
	return c.Cause != nil && c.Cause.Message == p.Message && (c.Kind == ConditionCertificate || c.Cause.Pos == p.Pos && c.Cause.Key == p.Key)
}

// ConditionsOf returns the conditions of a kind, and which of them are not OK.
func (s Status) ConditionsOf(kind string) (all, failed []Condition) {
	for _, c := range s.Conditions {
		if c.Kind == kind {
			if all = append(all, c); !c.OK {
				failed = append(failed, c)
			}
		}
	}
	return all, failed
}

// Use says how the addresses of a pool are used: "6 addresses: 3 leased, 1 offered, 2 free".
func (p Pool) Use() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{p.Leased, "leased"}, {p.Offered, "offered"}, {p.Quarantined, "quarantined"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return fmt.Sprintf("%d addresses: %s", p.Size, strings.Join(append(parts, fmt.Sprintf("%d free", p.Free)), ", "))
}
