package api

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Status is the state of the daemon.
type Status struct {
	Lab        string           `json:"lab"`
	LabFile    string           `json:"lab_file,omitempty"` // or folder, as the daemon's machine names it
	Version    string           `json:"version"`
	Generation uint64           `json:"generation"` // of the running lab; counts from 1
	Started    time.Time        `json:"started"`
	Stopping   time.Time        `json:"stopping,omitzero"` // since when it stops: balancers drain, transfers end; zero: it does not
	Servers    []Server         `json:"servers"`
	Addresses  []Address        `json:"addresses,omitempty"` // of clusters and balancers
	Balancers  []BalancerHealth `json:"balancers,omitempty"`
	Namespace  string           `json:"network_namespace,omitempty"` // of the daemon, as /proc/PID/ns/net names it
	Conditions []Condition      `json:"conditions,omitempty"`        // interfaces, hypervisors, pools, disks, certificates, DNS upstreams, other DHCP servers; machines and zones that are refused
	Store      Store            `json:"store"`
	Reload     Reload           `json:"reload"`               // the last one; zero At: none since the start
	Faults     lab.Problems     `json:"faults,omitempty"`     // errors of the running lab, as those of a Reload
	Warnings   lab.Problems     `json:"warnings,omitempty"`   // of the running lab, such as missing files; of the store
	StateLost  string           `json:"state_lost,omitempty"` // install states were lost, and no admin has accepted that: when, why and what to do
	Files      string           `json:"files"`                // what confines the process to its files, as "Landlock 7"; else "off: " and why
	Calls      string           `json:"system_calls"`         // what confines it to the system calls of a server, as "seccomp"; else "off: " and why
}

// Ready reports whether every server serves.
func (s Status) Ready() bool { return len(s.Servers) > 0 && len(s.Unready()) == 0 }

// Unready returns the names of the servers that do not serve (yet).
func (s Status) Unready() (names []string) {
	for _, srv := range s.Servers {
		if !srv.Serving {
			names = append(names, srv.Name)
		}
	}
	return names
}

// A ServerState is the state of a server as status, /readyz and the dashboard show it.
type ServerState string

// The states of servers.
const (
	StateServing  ServerState = "serving"
	StateIdle     ServerState = "nothing to serve"
	StateDegraded ServerState = "degraded" // it serves, and what it needs for that, or what it serves, does not work
	StatePartly   ServerState = "partly serving"
	StateDown     ServerState = "not serving"
)

// StateOf returns the state of a server, by what was measured.
func (s Status) StateOf(srv Server) ServerState {
	switch {
	case !srv.Serving && len(srv.Addrs) > 0:
		return StatePartly
	case !srv.Serving:
		return StateDown
	case len(s.Degraded(srv)) > 0:
		return StateDegraded
	case srv.Idle:
		return StateIdle
	}
	return StateServing
}

// WithStates returns s with the state of each server and what is wrong with it, for those who read JSON.
func (s Status) WithStates() Status {
	s.Servers = slices.Clone(s.Servers)
	for i, srv := range s.Servers {
		s.Servers[i].State, s.Servers[i].Problems = s.StateOf(srv), s.Problems(srv)
	}
	return s
}

// Degraded says why a server that serves is of less use than it should be, without names and addresses: /readyz is open to anyone.
func (s Status) Degraded(srv Server) (why []string) {
	if srv.Cause != "" {
		why = append(why, srv.Cause)
	} else if len(srv.Warnings) > 0 {
		why = append(why, "bootlab status says why")
	}
	if srv.Panics > 0 {
		why = append(why, fmt.Sprintf("panics contained: %d (bootlab status says where)", srv.Panics))
	}
	return append(why, s.Unhealthy(srv)...)
}

// Unhealthy counts the balancers of the load balancer that have no healthy backend, in one text; nil: there are none.
func (s Status) Unhealthy(srv Server) []string {
	n := len(s.Notes(srv))
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("balancers without a healthy backend: %d of %d", n, len(s.Balancers))}
}

// Problems says what is wrong with a server, in the words of status.
func (s Status) Problems(srv Server) (problems []string) {
	if srv.Err != "" {
		problems = append(problems, srv.Err)
	}
	return slices.Concat(problems, srv.Warnings, s.Unhealthy(srv))
}

// Light is the class of a server in the dashboard, which gives it its colour.
func (s Status) Light(srv Server) string {
	return map[ServerState]string{StateServing: "up", StateIdle: "idle", StateDegraded: "degraded", StatePartly: "down", StateDown: "down"}[s.StateOf(srv)]
}

// Notes says which balancers of the load balancer have no healthy backend: it accepts connections, and nobody answers them.
func (s Status) Notes(srv Server) (notes []string) {
	for _, b := range s.Balancers {
		if srv.Name == "lbproxy" && b.Empty() {
			notes = append(notes, b.Name+": "+b.String())
		}
	}
	return notes
}

// Unreached returns the addresses at which clients do not reach this machine.
func (s Status) Unreached() (unreached []Address) {
	for _, a := range s.Addresses {
		if !a.OK {
			unreached = append(unreached, a)
		}
	}
	return unreached
}

// A Server is one of the daemon's servers.
type Server struct {
	Name     string      `json:"name"`               // dhcpd, tftpd, dnsd, httpd, admin, lbproxy, virt
	Serving  bool        `json:"serving"`            // it serves everything that the lab asks for; true too if Idle
	State    ServerState `json:"state,omitempty"`    // as StateOf says; of WithStates
	Problems []string    `json:"problems,omitempty"` // what is wrong with it, as Problems says; of WithStates
	Idle     bool        `json:"idle,omitempty"`     // the lab gives it nothing to serve: no balancer, no hypervisor, tftp: off
	Since    time.Time   `json:"since,omitzero"`     // it began to serve, or stopped
	Addrs    []string    `json:"addrs,omitempty"`    // open sockets, and interfaces of dhcpd
	Err      string      `json:"err,omitempty"`      // why it does not serve, or not everywhere
	Cause    string      `json:"cause,omitempty"`    // Err, or what a server that serves lacks, in a few words, without names and addresses: /readyz is open to anyone
	Warnings []string    `json:"warnings,omitempty"` // about others that it needs: a hypervisor that does not respond
	Panics   int         `json:"panics,omitempty"`   // that were contained since the start: bugs of bootlab
}

// An Address is a VIP, of a cluster or of balancers: clients connect to it.
type Address struct {
	Addr      netip.Addr `json:"addr"`
	Interface string     `json:"interface,omitempty"` // that has it; else that of its network
	For       string     `json:"for"`                 // who listens there, such as "cluster prod"
	State     string     `json:"state"`               // added (by bootlab), present (something else did), probing, in_use, conflict, leased, missing
	OK        bool       `json:"ok"`                  // clients reach this machine at it
	MAC       lab.MAC    `json:"mac,omitzero"`        // of the other machine that uses it
	Host      string     `json:"host,omitempty"`      // that machine, if the lab knows it
	Since     time.Time  `json:"since,omitzero"`      // of the state
	Problem   string     `json:"problem,omitempty"`   // why it is not OK, or not fully known, and what to do
	Command   string     `json:"command,omitempty"`   // what adds it by hand, or sets its interface up
}

// AddressProbing is Address.State while other machines are asked whether they use the address.
const AddressProbing = "probing"

// Short says the state in a few words.
func (a Address) Short() string {
	words := map[string]string{"present": "present, not added by bootlab", "in_use": "used by another machine",
		"conflict": "used by another machine, too", "leased": "leased to another machine", "missing": "on no interface", AddressProbing: "not added yet"}
	return cmp.Or(words[a.State], a.State)
}

// A Store is the state of what is kept on disk.
type Store struct {
	Folder     string        `json:"folder"`
	Synced     time.Time     `json:"synced,omitzero"` // the last write that is on disk; zero: none since the start
	Took       time.Duration `json:"took,omitempty"`  // of that write, in nanoseconds
	FreeBytes  uint64        `json:"free_bytes"`
	FreeInodes uint64        `json:"free_inodes"` // 0 too where the file system has no limit
	// FreeUnknown says that the file system cannot be asked: FreeBytes and FreeInodes are 0 then.
	FreeUnknown bool     `json:"free_unknown,omitempty"`
	Problems    []string `json:"problems,omitempty"` // why it is degraded: what happened and what to do; empty: it is not
	Causes      []string `json:"causes,omitempty"`   // the same in a few words, without names: /readyz is open to anyone
}

// A Reload is the outcome of an attempt to apply a lab.
type Reload struct {
	At         time.Time     `json:"at,omitzero"`
	Generation uint64        `json:"generation"`       // in use afterwards
	Err        string        `json:"err,omitempty"`    // why the lab was refused, one problem a line; empty: it was applied
	Detail     string        `json:"detail,omitempty"` // what changed, in a few words
	Dur        time.Duration `json:"dur,omitempty"`    // until the new lab was in use, in nanoseconds
	Warnings   lab.Problems  `json:"warnings,omitempty"`
	Armed      string        `json:"armed,omitempty"`  // which machines reloads have armed, and what to do; empty: none, or an admin has accepted them
	Faults     lab.Problems  `json:"faults,omitempty"` // errors of an applied lab: the machines, zones and certificates that they are about are refused until they are fixed
}

// Refused says that the reload was refused, and which lab is used instead; empty: it was applied, or there was none. Err says why.
func (r Reload) Refused() string {
	if r.Err == "" {
		return ""
	}
	return fmt.Sprintf("the reload of %s was refused; generation %d stays in force", r.At.Local().Format(time.DateTime), r.Generation)
}

// A Host is the current state of one machine of the lab.
type Host struct {
	Name    string       `json:"name"`
	FQDN    string       `json:"fqdn,omitempty"`
	MACs    []lab.MAC    `json:"macs,omitempty"`
	IP      netip.Addr   `json:"ip,omitzero"` // reserved or leased
	IP6     netip.Addr   `json:"ip6,omitzero"`
	Network string       `json:"network,omitempty"`
	NICs    []NIC        `json:"nics,omitempty"` // in further networks
	Cluster string       `json:"cluster,omitempty"`
	Role    string       `json:"role,omitempty"`
	Profile string       `json:"profile,omitempty"`
	Install string       `json:"install,omitempty"`         // armed, booting, installing, installed, held, unknown (lost); empty: nothing to install
	Assumed bool         `json:"install_assumed,omitempty"` // assumed to be installed, because install_timeout ended
	Note    string       `json:"install_note,omitempty"`    // why it counts as installed without a callback of its installer; why its state is unknown, and what to do
	Unknown time.Time    `json:"install_unknown,omitzero"`  // since when Install is unknown
	Disk    string       `json:"disk,omitempty"`            // that its installation overwrites, such as /dev/vda; empty: its profile installs nothing
	Stage   event.Stage  `json:"stage,omitempty"`           // stage of its last boot; empty: never seen
	Last    *event.Event `json:"last,omitempty"`            // nil: never seen
	VM      string       `json:"vm,omitempty"`              // as VM.State; empty: bare metal

	Power string `json:"power,omitempty"` // what switches its power: libvirt, redfish, ipmi; empty: nothing does

	Hypervisor string `json:"hypervisor,omitempty"` // that has the VM, or is to have it; empty: none was chosen yet

	// MachineStage is what the machine is, by all that was measured of it: unknown, off, waiting, booting, stopped, installing, starting,
	// serving, running, failing, gone; empty: it is the appliance. MachineWhy says why, in one sentence.
	MachineStage string `json:"machine_stage,omitempty"`
	MachineWhy   string `json:"machine_why,omitempty"`
}

// Stages of a machine that pages and commands treat in their own way.
const (
	MachineOff        = "off"
	MachineBooting    = "booting"
	MachineInstalling = "installing"
	MachineStopped    = "stopped"
	MachineFailing    = "failing"
)

// Bad reports whether something went wrong with the machine.
func (h Host) Bad() bool { return h.MachineStage == MachineStopped || h.MachineStage == MachineFailing }

// StateText is what the machine is, and where its boot is or stopped.
func (h Host) StateText() string {
	if h.Stage != "" && (h.MachineStage == MachineBooting || h.MachineStage == MachineStopped) {
		return h.MachineStage + " at " + string(h.Stage)
	}
	return h.MachineStage
}

// InstallText is Install for people: an installation that began, of a machine that is off, is unfinished. That a machine stopped says less: its
// neighbours can forge what that follows from.
func (h Host) InstallText() string {
	if (h.Install == "booting" || h.Install == "installing") && h.MachineStage == MachineOff {
		return "unfinished"
	}
	return h.Install
}

// A NIC is one that a host does not boot from.
type NIC struct {
	MAC     lab.MAC    `json:"mac"`
	IP      netip.Addr `json:"ip,omitzero"` // reserved, else leased
	IP6     netip.Addr `json:"ip6,omitzero"`
	FQDN    string     `json:"fqdn,omitempty"`
	Network string     `json:"network,omitempty"`
}

// A Boot is one recorded boot of one machine.
type Boot struct {
	Host    string        `json:"host,omitempty"`
	MAC     lab.MAC       `json:"mac"`
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended,omitzero"`  // of the last event
	Stage   event.Stage   `json:"stage,omitempty"` // the last one reached
	Outcome string        `json:"outcome"`         // booting, done, failed; stopped, off, unknown: no event since, as in hosts; ended: its virtual machine was deleted before; none: no boot, as nothing was started
	Reason  string        `json:"reason,omitempty"`
	Claimed int           `json:"claimed,omitempty"` // events that other machines caused; the first of them are among events
	Events  []event.Event `json:"events"`
}

// A Diagnosis says where the last boot of a host stopped, and why.
type Diagnosis struct {
	Host     string        `json:"host"`
	State    string        `json:"state"`            // done, booting, stopped, or unknown: nothing that bootlab sees can tell
	Stage    event.Stage   `json:"stage,omitempty"`  // where it is, or stopped
	Since    time.Time     `json:"since,omitzero"`   // of the last event that State is about; zero: none
	Reason   event.Reason  `json:"reason,omitempty"` // why a request was refused or a transfer ended; empty: Cause is about none
	Cause    string        `json:"cause"`            // one sentence
	Evidence []event.Event `json:"evidence,omitempty"`
	Facts    []string      `json:"facts,omitempty"` // measured now, beside the events: a server that does not serve, a full pool
	Do       []string      `json:"do,omitempty"`    // what to do about it, with commands

	HypervisorSilent bool `json:"hypervisor_silent,omitempty"` // its hypervisor does not answer: Facts say why

	MachineStage string `json:"machine_stage,omitempty"` // as of a Host; empty: not in the lab
	MachineWhy   string `json:"machine_why,omitempty"`

	Install string `json:"install,omitempty"` // as of a Host; empty: nothing to install, or not in the lab
}

// Stopped reports whether something is wrong, or cannot be known.
func (d Diagnosis) Stopped() bool { return d.State != "done" && d.State != "booting" }

// Failing reports whether the machine was started, or nothing boots it from here, and its check fails or another machine uses its address.
func (d Diagnosis) Failing() bool { return d.MachineStage == MachineFailing }

// StateText is what the machine is, as hosts shows it, and where its boot is or stopped.
func (d Diagnosis) StateText() string {
	text := cmp.Or(d.MachineStage, d.State)
	if d.State == "done" || d.Stage == "" || d.MachineStage == MachineOff || d.MachineStage == "waiting" {
		return text
	}
	return text + " at stage " + string(d.Stage)
}

// Unknown reports whether nothing that was received can tell how the boot is.
func (d Diagnosis) Unknown() bool { return d.State == "unknown" }

// An Arming is the answer to a request to install a machine.
type Arming struct {
	Host    string `json:"host"`
	State   string `json:"state"`            // of the install afterwards, such as armed
	Cycled  bool   `json:"cycled,omitempty"` // it was power-cycled
	Message string `json:"message,omitempty"`
}

// A State is the condition of the state folder.
type State struct {
	Folder    string        `json:"folder"`
	Database  string        `json:"database"` // its random name
	Condition string        `json:"condition"`
	Since     time.Time     `json:"since,omitzero"`    // of a loss: when it was noticed
	Reason    string        `json:"reason,omitempty"`  // of a loss
	Advice    string        `json:"advice,omitempty"`  // likewise: what to do
	Problem   string        `json:"problem,omitempty"` // the file was removed, replaced or unmounted while in use
	Markers   []StateMarker `json:"markers"`
	Unknown   []string      `json:"unknown"`   // hosts whose install state is unknown
	Held      []string      `json:"held"`      // hosts that a restore holds: they start from their own disks until an admin says what they are
	LoopHeld  []string      `json:"loop_held"` // hosts held after too many attempts to install: they start from their own disks, too
	// Install are the hosts that install themselves at their next network boot; after a loss, once it is accepted. Pools are pools,
	// as network/pool, whose machines do, unless they are known to be installed.
	Install []string `json:"install"`
	Pools   []string `json:"pools"`
}

// The conditions of a state folder.
const (
	StateKnown = "known" // it is the one that was used before
	StateFirst = "first" // it is new: the first start of this lab
	StateLost  = "lost"  // install states were lost, and no admin has accepted that
)

// A StateMarker is a file that shows a loss of the state.
type StateMarker struct {
	Path string `json:"path"`
	Err  string `json:"err,omitempty"` // why it does not name the database; empty: it does
}

// A Cluster is the state of a cluster.
type Cluster struct {
	Name             string           `json:"name"`
	Kind             string           `json:"kind"` // openshift, kubernetes
	Domain           string           `json:"domain"`
	Address          netip.Addr       `json:"address,omitzero"`
	Phase            string           `json:"phase"` // unknown (nothing was measured yet), down, bootstrapping, not serving, joining, degraded, ready
	Since            time.Time        `json:"since,omitzero"`
	Waits            string           `json:"waits,omitempty"`            // what it waits for; empty: it is ready
	NeedsUp          bool             `json:"needs_up,omitempty"`         // that is an admin who brings it up
	Up               time.Time        `json:"up,omitzero"`                // an admin asked for it to be brought up; zero: it is ready, or none did
	BootstrapRemoved time.Time        `json:"bootstrap_removed,omitzero"` // the bootstrap machine was removed from the balancers; zero: it was not
	Serving          int              `json:"serving"`                    // control-plane machines that serve
	ControlPlane     int              `json:"control_plane"`              // how many machines it has
	Note             string           `json:"note,omitempty"`             // of an answer to down: what is still on
	Machines         []ClusterMachine `json:"machines"`
}

// ClusterReady is Cluster.Phase of a cluster that is ready.
const ClusterReady = "ready"

// Stuck returns the machines that go on only if an admin acts.
func (c Cluster) Stuck() (stuck []ClusterMachine) {
	for _, m := range c.Machines {
		if m.Stuck {
			stuck = append(stuck, m)
		}
	}
	return stuck
}

// A ClusterMachine is one machine of a cluster.
type ClusterMachine struct {
	Host    string    `json:"host"`
	Role    string    `json:"role"`
	Stage   string    `json:"machine_stage"` // as of its Host
	Since   time.Time `json:"since,omitzero"`
	Waits   string    `json:"waits,omitempty"`    // what it waits for
	NeedsUp bool      `json:"needs_up,omitempty"` // as of its Cluster
	Stuck   bool      `json:"stuck,omitempty"`    // it goes on only if an admin does what Waits says
	Cause   string    `json:"cause,omitempty"`    // why its boot stopped, as GET hosts/HOST/why says; empty: it did not
	Disk    string    `json:"disk,omitempty"`     // that its next network boot overwrites

	MachineWhy string `json:"machine_why,omitempty"` // of its Host
}

// A Session is a login of the dashboard.
type Session struct {
	From  netip.Addr `json:"from,omitzero"` // the client that logged in
	Since time.Time  `json:"since"`
	Used  time.Time  `json:"used"` // last request
}

// Revoked is the answer to a request to end all sessions.
type Revoked struct {
	Sessions int `json:"sessions"` // how many were ended
}

// A Token is the secret that the admin API asks for over TCP.
type Token struct {
	Token string `json:"token"`
}
