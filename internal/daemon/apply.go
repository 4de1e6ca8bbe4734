package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/daemon/privileges"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/host/file/freshfile"
	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/lbproxy"
)

// loadSnapshot reads and compiles a lab, and what dynamic updates have made of its zones. inForce is the appliance that the daemon was
// started with, which a reload does not change, and confined what limits the daemon; both are nil at the start.
func loadSnapshot(path string, inForce *lab.Appliance, confined *confine.Confinement, updates []dnsd.RRSet) (*snapshot.Snapshot, error) {
	l, err := load.Lab(path, load.Options{InterfaceAddr: interfaces.AddrIn, Appliance: inForce})
	if err != nil {
		return nil, privileges.ExplainDenied(confined, err)
	}
	if err := privileges.Outside(confined, l); err != nil {
		return nil, err
	}
	l.Warnings = slices.Concat(l.Warnings, interfaces.NetworkWarnings(l), privileges.Unreadable(l))
	return compile(l, updates)
}

// compile compiles a lab for a start and a reload. Its error refuses the lab; the snapshot's Faults refuse single machines and zones. Certificates
// are read again while they are in use: certificateProblems.
func compile(l *lab.Lab, updates []dnsd.RRSet) (*snapshot.Snapshot, error) {
	s, err := snapshot.Compile(l, updates...)
	if err != nil {
		return nil, err
	}
	s.At = time.Now()
	return s, nil
}

// Findings are what is wrong with a lab that can be served.
type Findings struct {
	Faults   lab.Problems // machines, zones and certificates that are refused until these are fixed; everything else is served
	Warnings lab.Problems
}

// A Strictness says what missing files and unreadable zones are.
type Strictness bool

const (
	Lenient Strictness = false // warnings
	Strict  Strictness = true  // errors
)

// add adds a missing file or an unreadable zone.
func (f *Findings) add(p *lab.Problem, s Strictness) {
	switch {
	case s == Lenient:
		f.warn(p)
	case !f.Faults.Has(p):
		f.Faults = append(f.Faults, p)
	}
}

// warn adds the warnings that are not among them yet: of a lab with errors, some tables are compiled twice.
func (f *Findings) warn(all ...*lab.Problem) {
	for _, p := range all {
		if !f.Warnings.Has(p) {
			f.Warnings = append(f.Warnings, p)
		}
	}
}

// Check finds what a start of the daemon, or a reload, would find. The error is why the lab would be refused; the lab is nil if it cannot be
// read.
func Check(path string, strict Strictness) (*lab.Lab, Findings, error) {
	l, warnings, err := load.Check(path, load.Options{InterfaceAddr: interfaces.AddrIn})
	var found Findings
	for _, p := range warnings {
		found.add(p, strict && p.Path != "")
	}
	if l != nil {
		bad, doubtful := certificateProblems(l, freshfile.ReadCertificate, time.Now())
		found.Faults, found.Warnings = append(found.Faults, bad...), append(found.Warnings, doubtful...)
	}
	if err != nil {
		err = found.addParts(l, err, strict, snapshot.Sound)
		return nil, found, err
	}
	found.warn(interfaces.AddressWarnings(l)...)
	var refused []error
	if len(l.Appliance.Store.Etcd) > 0 {
		refused = append(refused, lab.Problems{{Pos: l.StoreAt, Key: "appliance.store.etcd", Message: statefile.NoEtcd(l.Appliance)}})
	}
	s, err := snapshot.CompileParts(l)
	if err != nil {
		err = found.addParts(l, err, strict, func(l *lab.Lab, _ lab.Problems) []*lab.Host { return boot.Machines(l) })
	} else {
		found.Faults = append(found.Faults, s.CheckAll()...)
	}
	missing, others := s.TableWarnings()
	found.warn(others...)
	for _, p := range missing {
		found.add(p, strict)
	}
	if s.Files != nil {
		found.warn(slices.Concat(s.Files.Exposed(), s.Files.Unserved(l))...)
	}
	return l, found, errors.Join(append(refused, err)...)
}

// addParts adds what is found in the parts of a lab with errors that these do not concern: in what some hosts boot and, in the error that it
// returns, in the zones. The lab may be nil: it cannot be read at all.
func (f *Findings) addParts(l *lab.Lab, err error, strict Strictness, sound func(*lab.Lab, lab.Problems) []*lab.Host) error {
	var problems lab.Problems
	if l == nil || !errors.As(err, &problems) {
		return err
	}
	faults, ignored := boot.Findings(l, sound(l, problems))
	f.Faults = append(f.Faults, faults...)
	f.warn(ignored...)
	zones, missing := snapshot.ZoneProblems(l)
	for _, p := range missing {
		f.add(p, strict)
	}
	known := map[string]bool{}
	for _, p := range problems {
		known[p.Error()] = true
	}
	for _, p := range zones {
		if !known[p.Error()] {
			problems = append(problems, p)
		}
	}
	return problems.Err()
}

// A change is a snapshot that is not in use yet, with its new listeners open.
type change struct {
	d    *Daemon
	snap *snapshot.Snapshot
	own  *ports.Staged
	lb   *lbproxy.Staged
	dhcp *dhcpd.Staged

	followed func() // of install.Machine.Follow; nil: at the start
}

// stage opens the listeners that s needs and that are not open yet: all of them, or none.
func (d *Daemon) stage(s *snapshot.Snapshot) (*change, error) {
	own, err := d.ports.Stage(context.Background(), endpoints(s.Lab)) // nothing waits
	if err != nil {
		return nil, err
	}
	d.staged = s.Lab
	lb, err := d.lb.Stage(s.LB)
	if err != nil {
		own.Discard()
		return nil, err
	}
	dhcp, err := d.dhcp.Stage(s.DHCP)
	if err != nil {
		own.Discard()
		lb.Discard()
		return nil, err
	}
	return &change{d: d, snap: s, own: own, lb: lb, dhcp: dhcp}, nil
}

// commit makes all servers use the snapshot, by one atomic store, and closes the listeners that it does not need. The balancers, which join it
// with what they have learned, follow at once: what takes time comes after them.
func (c *change) commit() {
	snap := *c.snap
	snap.UseDNS(c.d.dnsTable(snap.Lab, snap.DNS))
	c.snap = &snap
	c.d.current.Store(c.snap)
	c.lb.Commit()
	c.own.Commit()
	c.dhcp.Commit()
	c.d.addresses.Want(c.snap.Lab)
	c.d.loops.ReleaseAll() // what they boot may be fixed now
	c.d.warnPrograms(c.snap.Lab)
	if c.followed != nil {
		c.followed()
	}
}

// discard closes the new listeners.
func (c *change) discard() {
	c.own.Discard()
	c.lb.Discard()
	c.dhcp.Discard()
}

// reloads holds the result of the last reload. Only one runs at a time.
type reloads struct {
	running sync.Mutex

	mu   sync.Mutex
	last api.Reload
}

func (r *reloads) applied(result api.Reload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = result
}

func (r *reloads) refused(at time.Time, gen uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = api.Reload{At: at, Generation: gen, Err: brief(err)}
}

// result returns how the last reload went.
func (r *reloads) result() api.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// brief returns the first lines of a long error; bootlab check shows all.
func brief(err error) string {
	const few = 20
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= few {
		return err.Error()
	}
	return fmt.Sprintf("%s\n… and %d more; bootlab check shows all", strings.Join(lines[:few], "\n"), len(lines)-few)
}

// problems returns the warnings of s that hold now, as files come and go after the load, and the errors for which machines, zones and
// certificates are refused.
func (d *Daemon) problems(s *snapshot.Snapshot) (warnings, faults lab.Problems) {
	bad, doubtful := certificateProblems(s.Lab, d.certificates.Now, time.Now())
	loaded := s.Warnings()
	removed := slices.DeleteFunc(d.files.Missing(s.Lab), func(p *lab.Problem) bool { return slices.Contains(loaded, p) })
	ended := d.endedWarnings(s.Lab)
	faults = slices.Concat(s.Faults(), bad)
	for _, p := range slices.Concat(loaded, doubtful, removed) {
		if !faults.Has(p) && !slices.Contains(ended, p) && (p.Path == "" || privileges.Open(p.Path) != nil) {
			warnings = append(warnings, p)
		}
	}
	return warnings, faults
}

// endedWarnings returns the warnings of a lab that no longer hold: an installed cluster needs no bootstrap machine.
func (d *Daemon) endedWarnings(l *lab.Lab) (ended lab.Problems) {
	for _, c := range l.Clusters {
		if c.NoBootstrap != nil && !slices.ContainsFunc(c.Hosts, func(h *lab.Host) bool { return h.Role == lab.RoleControlPlane && d.installs.WouldInstall(h) }) {
			ended = append(ended, c.NoBootstrap)
		}
	}
	return ended
}

// reloadBecause reloads, but refuses a lab that lost more than half of its contents. The outcome is an event.
func (d *Daemon) reloadBecause(why string) {
	d.log.Debug("reloading the lab", "because", why)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReloading)
	_ = d.Reload(api.Careful) // recorded as an event
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
}

// Reload reads the lab file again and makes all servers use it. On an error the running lab stays in force; log, metrics and status
// have the reason.
func (d *Daemon) Reload(force api.Force) error {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	start := time.Now()
	before := d.current.Load()
	change, err := d.prepare(before, force)
	if err != nil {
		d.reloads.refused(start, before.Gen, err)
		d.reloadMetrics.Refused()
		d.bus.Record(event.Event{Kind: event.LabRefused, Detail: d.cfg.Lab, Err: brief(err), Dur: time.Since(start)})
		return err
	}
	hosts, pools := d.mayInstall(before.Lab)
	change.commit()
	d.reloaded(change.snap.Lab)
	d.noteArmed(before.Lab, change.snap.Lab, hosts, pools)
	d.applied(change.snap, time.Since(start))
	return nil
}

// applied records that a snapshot is in use.
func (d *Daemon) applied(s *snapshot.Snapshot, took time.Duration) {
	warnings, faults := d.problems(s)
	hosts, pools := d.armedByReload(s.Lab)
	d.reloads.applied(api.Reload{
		At: s.At, Generation: s.Gen, Detail: s.Lab.Summary(), Dur: took, Warnings: warnings, Faults: faults, Armed: armedText(byReload, withMode(s.Lab, hosts), pools),
	})
	d.reloadMetrics.Applied(s.Lab.Name, len(s.Lab.Hosts), s.Gen, s.At)
	d.bus.Record(event.Event{Kind: event.LabApplied, Detail: s.Lab.Summary(), Dur: took})
	d.warn(s)
}

// loggedWarnings holds the warnings and errors that were logged, so that each is logged once while it holds.
type loggedWarnings struct {
	mu     sync.Mutex
	logged lab.Problems
}

// fresh returns those of now that were not logged before, and remembers now.
func (n *loggedWarnings) fresh(now lab.Problems) lab.Problems {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.logged
	n.logged = now
	return slices.DeleteFunc(slices.Clone(now), before.Has)
}

// warn logs all warnings and errors about a lab that has just come into use.
func (d *Daemon) warn(s *snapshot.Snapshot) {
	d.warned.fresh(nil)
	d.warnNew(s)
}

// warnNew logs the warnings and errors that were not logged yet, and what has changed of networks. Addresses that networks lack are among both: the second
// says it better.
func (d *Daemon) warnNew(s *snapshot.Snapshot) {
	warnings, faults := d.currentWarnings(s)
	for _, w := range d.warned.fresh(slices.Concat(faults, warnings)) {
		if faults.Has(w) {
			d.log.Error("lab file has an error: what it is about is refused until it is fixed", "err", w)
		} else if !strings.HasPrefix(w.Key, "networks.") || !strings.HasSuffix(w.Key, ".address") {
			d.log.Warn("lab file has a warning", "warning", w)
		}
	}
	d.networks.log(s.Lab, d.log)
	d.noARP.log(s.Lab, d.log)
}

// noARP is why no ARP requests can be sent.
type noARP struct {
	err    error // nil: they can
	logged sync.Once
}

// log warns of it, once, if the lab serves machines: who balances connections alone asks for none.
func (n *noARP) log(l *lab.Lab, log *slog.Logger) {
	serves := slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.DHCP != lab.DHCPOff }) ||
		slices.ContainsFunc(l.Hosts, func(h *lab.Host) bool { return h.Profile != nil })
	if n.err == nil || !serves {
		return
	}
	n.logged.Do(func() {
		log.Warn("no ARP requests: which machine uses an address is taken from the kernel's neighbour table alone, and who sent a request by TFTP is not "+
			"known; start as root, or with CAP_NET_RAW", "err", n.err)
	})
}

// loadNext loads what a reload would put in force.
func (d *Daemon) loadNext(before *snapshot.Snapshot, force api.Force) (*snapshot.Snapshot, error) {
	s, err := loadSnapshot(d.cfg.Lab, &before.Lab.Appliance, d.confined, d.updates.List())
	if err != nil {
		return nil, err
	}
	if err := dropsMost(before.Lab, s.Lab); err != nil && force != api.Forced {
		return nil, err
	}
	return s, nil
}

// prepare does everything of a reload that can fail.
func (d *Daemon) prepare(before *snapshot.Snapshot, force api.Force) (*change, error) {
	s, err := d.loadNext(before, force)
	if err != nil {
		return nil, err
	}
	s.Gen = before.Gen + 1
	c, err := d.stage(s)
	if err != nil {
		return nil, err
	}
	if c.followed, err = d.followMachines(context.Background(), s.Lab); err != nil { // nobody waits
		c.discard()
		return nil, err
	}
	return c, nil
}

// errForce ends the refusal of a lab file that may be truncated.
var errForce = errors.New("bootlab reload --force applies it anyway")

// fewToLose is how many a lab has at least of a kind, other than hosts, of which it cannot lose more than half unnoticed: to remove one or
// two is a change like any other.
const fewToLose = 3

// dropsMost refuses a lab without most of what was there before. A host with another name is still there; of the other kinds, which may be
// renamed, what the lab file lists is counted, not what is derived from it.
func dropsMost(before, after *lab.Lab) error {
	left := map[*lab.Host]bool{}
	for _, h := range before.Hosts {
		left[sameMachine(after, h)] = true
	}
	delete(left, nil)
	listed := func(b *lab.Balancer) bool { return b.Cluster == nil }
	inFile := func(z *lab.Zone) bool { return !z.Derived }
	for _, kind := range []struct {
		name       string
		least      int // of the kind that were there
		were, left int
	}{
		{"hosts", 1, len(before.Hosts), len(left)},
		{"networks", fewToLose, len(before.Networks), len(after.Networks)},
		{"clusters", fewToLose, len(before.Clusters), len(after.Clusters)},
		{"balancers", fewToLose, countOf(before.Balancers, listed), countOf(after.Balancers, listed)},
		{"zones", fewToLose, countOf(before.Zones, inFile), countOf(after.Zones, inFile)},
	} {
		if kind.were >= kind.least && 2*kind.left < kind.were {
			return fmt.Errorf("the new lab file drops more than half of the %s (%d of %d are left); %w", kind.name, kind.left, kind.were, errForce)
		}
	}
	return nil
}

// sameMachine returns the host of a lab that has a MAC of h, the one with its name if several have, as install states follow their machines;
// else the one with its name; nil: none.
func sameMachine(l *lab.Lab, h *lab.Host) (same *lab.Host) {
	for _, m := range h.AllMACs() {
		if has := l.HostByMAC(m); has != nil && (same == nil || has.Name == h.Name) {
			same = has
		}
	}
	if same == nil {
		return l.Host(h.Name)
	}
	return same
}

// countOf returns how many of all are counted.
func countOf[T any](all []T, counts func(T) bool) (n int) {
	for _, x := range all {
		if counts(x) {
			n++
		}
	}
	return n
}
