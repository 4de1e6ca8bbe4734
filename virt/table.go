package virt

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is the virtual machines of a lab. It is immutable.
type Table struct {
	// Files are what its machines are made from; nil: those with an image cannot be created. It is set before the table is used.
	Files Files

	lab         string
	machines    []*machine // sorted by host name
	byHost      map[string]*machine
	hypervisors []*lab.Hypervisor
	open        bool // for some machines bootlab chooses the hypervisor
}

// A machine is one host with a vm, ready to be written as XML.
type machine struct {
	table   *Table // of its lab, without placements
	host    *lab.Host
	vm      *lab.VM
	attach  []lab.Attachment // bridge or network of each NIC, in the order of Host.Interfaces
	uuid    string
	macs    []string // of all NICs, as Domain.MACs has them: two machines must not have one
	targets []string // device name of each disk, such as vda

	// candidates are the machine on each hypervisor that may have it. vm.Hypervisor is nil then: none was chosen yet.
	candidates []*machine

	marked func() metadata // see mark; nil: not kept
}

// Compile returns the virtual machines of l. The error is lab.Problems: what libvirt would refuse only when a machine is
// created or started.
func Compile(l *lab.Lab) (*Table, error) {
	t := &Table{lab: l.Name, byHost: map[string]*machine{}, hypervisors: l.Hypervisors}
	var problems lab.Problems
	for _, h := range l.Hosts {
		if h.VM == nil {
			continue
		}
		m := compileMachine(t, h, &problems)
		t.open = t.open || m.candidates != nil
		t.machines = append(t.machines, m)
		t.byHost[h.Name] = m
	}
	checkShared(t.machines, &problems)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return t, nil
}

// XML returns the domain XML of a host, on its first candidate if no hypervisor was chosen yet. Its disks are given as pool and
// volume, because the path of a volume is known only after its creation. It is an error if the host has no vm.
func (t *Table) XML(host string) (string, error) {
	m, err := t.machine(host)
	if err != nil {
		return "", err
	}
	m = m.first()
	return m.text(m.domain())
}

func (t *Table) machine(host string) (*machine, error) {
	m := t.byHost[host]
	if m == nil {
		return nil, fmt.Errorf("host %q is %w of lab %q: give it a vm in the lab file", host, ErrNoVM, t.lab)
	}
	return m, nil
}

// namespace is the namespace of the UUIDs of virtual machines (RFC 9562 section 5.5). Another value would orphan every
// existing virtual machine.
const namespace = "\x8f\x1b\x5c\x0e\x3a\x74\x4d\x62\x9c\x07\x2e\x51\xd6\xb8\xf3\x94"

// domainUUID returns the UUID of a host's domain, which depends on lab and host name only.
func domainUUID(labName, host string) string { return uuidOf(labName + "\x00" + host) }

// uuidOf returns the UUID of a name in the namespace.
func uuidOf(name string) string {
	sum := sha1.Sum([]byte(namespace + name))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x50 // version 5
	u[8] = u[8]&0x3f | 0x80 // variant of RFC 9562
	b := make([]byte, 0, 36)
	for i, part := range [][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return string(b)
}
