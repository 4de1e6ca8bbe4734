package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Leases are the addresses that machines hold.
type Leases interface {
	// AddrOf returns the address that is leased to mac.
	AddrOf(mac lab.MAC) (netip.Addr, bool)
}

// Deps are what the desk needs; all are required.
type Deps struct {
	Table    func() *Table
	Installs *install.Machine
	Unknown  *discovered.Book
	Leases   Leases
	Circles  *bootloop.Guard // shared with who gives addresses
	Events   event.Recorder
}

// A Desk answers machines. It is safe for concurrent use.
type Desk struct {
	deps     Deps
	scripts  scripts
	insisted insisted
}

// New returns a desk.
func New(deps Deps) *Desk {
	switch {
	case deps.Table == nil:
		panic("boot: Deps.Table is nil")
	case deps.Installs == nil:
		panic("boot: Deps.Installs is nil")
	case deps.Unknown == nil:
		panic("boot: Deps.Unknown is nil")
	case deps.Leases == nil:
		panic("boot: Deps.Leases is nil")
	case deps.Circles == nil:
		panic("boot: Deps.Circles is nil")
	case deps.Events == nil:
		panic("boot: Deps.Events is nil")
	}
	return &Desk{deps: deps}
}

// addrOf returns the address that mac holds: its lease, else its reservation.
func (d *Desk) addrOf(t *Table, mac lab.MAC) (netip.Addr, bool) {
	if addr, ok := d.deps.Leases.AddrOf(mac); ok {
		return addr, true
	}
	if h := t.lab.HostByMAC(mac); h != nil && h.IP.IsValid() {
		return h.IP, true
	}
	return netip.Addr{}, false
}

// machine returns who mac is in t: a host, or a guest of the pool that its address is from, or nil.
func (d *Desk) machine(t *Table, mac lab.MAC, from netip.Addr) *lab.Host {
	if addr, ok := d.addrOf(t, mac); ok {
		from = addr
	}
	return t.lab.MachineOf(mac, from)
}

// Script renders the script for the machine with that MAC: its installer, its own disk, or the reason why there is
// nothing for it. Asking for it begins a boot, which is durable when Script returns. name says for which boot loader:
// lab.GRUBName is GRUB's, any other iPXE's.
func (d *Desk) Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) ([]byte, error) {
	t := d.deps.Table()
	script, detail, err := d.script(ctx, t, mac, from, loaderOf(name))
	e := event.Event{Kind: event.ScriptServed, MAC: mac, Addr: from, Detail: name + ": " + detail, Bytes: int64(len(script))}
	switch {
	case errors.Is(err, errCircle):
		e.Kind, e.Detail, e.Err = event.ScriptLoop, name, fmt.Sprintf("%d times within %s; for %s it gets one that says so: mend the script, or what it loads",
			bootloop.MaxScripts, bootloop.Window, bootloop.Hold)
	case err != nil:
		d.tellRefused(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: name, Err: err.Error()})
		return nil, err
	}
	d.deps.Events.Record(e)
	return script, nil
}

// errCircle comes with the script that says so: to be told is what it is for.
var errCircle = fmt.Errorf("got its script %d times within %s and no system came; mend the script, or what it loads", bootloop.MaxScripts, bootloop.Window)

func (d *Desk) script(ctx context.Context, t *Table, mac lab.MAC, from netip.Addr, l loader) (script []byte, detail string, err error) {
	h := d.machine(t, mac, from)
	if h == nil || h.Profile == nil {
		return l.nothing(mac), "nothing in the lab for this machine", nil
	}
	local := func(why string) []byte { return l.localBoot(h.Name, why+": starting from its own disk", h.Local) }
	switch {
	case h.Profile.OS == lab.OSDiscover && h.Network != nil:
		return l.discover(mac, h.Network.BaseURL), "discovery", nil
	case !h.Profile.NetBoots():
		return local("has nothing to boot from the network"), "local boot", nil
	}
	if err := d.mayAsk(t, h, mac, from); err != nil {
		return nil, "", err
	}
	if d.circles(h, mac) {
		return l.held(h.Name, errCircle.Error()), "", errCircle
	}
	ticket, err := d.deps.Installs.Boot(ctx, h, install.Ask{NIC: mac, Prepare: func() (install.Signs, error) { return t.prepare(h, mac) }})
	switch {
	case err != nil:
		return nil, "", unbooted(err)
	case ticket.Held:
		return local("keeps installing and is held"), "local boot, held", nil
	case ticket.LocalBoot:
		return local("is installed"), "local boot", nil
	}
	script, err = d.scriptOf(t, h, mac, ticket.Token, l)
	return script, "profile " + h.Profile.Name, err
}

// circles reports whether the machine fetches its script again and again. Where nobody here hears its system ask for an address,
// nobody knows that.
func (d *Desk) circles(h *lab.Host, mac lab.MAC) bool {
	return h.Network != nil && h.Network.DHCP != lab.DHCPOff && d.deps.Circles.Scripted(mac)
}

// scriptOf returns the script of a boot, rendered once unless it is a file, which may change at any time.
func (d *Desk) scriptOf(t *Table, h *lab.Host, mac lab.MAC, token string, l loader) ([]byte, error) {
	who := asker{mac, h.IP, l.grub}
	if body, ok := d.scripts.find(t, who, token); ok {
		return body, nil
	}
	r := t.recipes[h.Profile]
	data, err := r.Data(t.lab, h, mac, token)
	if err != nil {
		return nil, later("render the script of "+h.Name, err)
	}
	body, err := l.script(r, data)
	if err != nil {
		return nil, later("render the script of "+h.Name, err)
	}
	if h.Profile.IPXE == "" {
		d.scripts.keep(t, who, token, body)
	}
	return body, nil
}

// prepare returns how the end of an install of h will be known. The error is a *Refusal: the machine would not get far, as its
// script, or a document of its boot, cannot be rendered or is broken. It must not begin a boot, let alone wipe its disk. A
// document that is not there yet may come meanwhile.
func (t *Table) prepare(h *lab.Host, mac lab.MAC) (install.Signs, error) {
	r := t.recipes[h.Profile]
	data, err := r.Data(t.lab, h, mac, "")
	if err == nil {
		err = firstFault(r, data)
	}
	if err != nil {
		return 0, later("render what "+h.Name+" boots", err)
	}
	return signs(r.Done(data)), nil
}

// unbooted is why a boot did not begin.
func unbooted(err error) error {
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		return refusal
	}
	return later("keep the state of this boot", err)
}

// firstFault returns why a machine would not get far, if anything.
func firstFault(r *recipe.Recipe, data recipe.Data) error {
	if faults := r.Faults(data); len(faults) > 0 {
		return faults[0].Err
	}
	return nil
}

// signs are the recipe's, in the words of the state machine.
func signs(d recipe.Done) (s install.Signs) {
	for _, pair := range []struct {
		done recipe.Done
		sign install.Signs
	}{{recipe.Callback, install.Call}, {recipe.NextBoot, install.NextBoot}, {recipe.SystemLease, install.SystemLease}} {
		if d.Has(pair.done) {
			s |= pair.sign
		}
	}
	return s
}

// Config renders the config document for a request that comes from `from` and carries token. Every error is a *Refusal and was told to the event bus; what
// one boot tries in vain once, however often.
func (d *Desk) Config(_ context.Context, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	t := d.deps.Table()
	doc, err := d.config(t, mac, token, name, from)
	if err != nil {
		d.refused(t, mac, from, name, err, token)
		return nil, err
	}
	return doc, nil
}

func (d *Desk) config(t *Table, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	h, r, err := d.owner(t, mac, from)
	if err != nil {
		return nil, err
	}
	data, err := r.Data(t.lab, h, mac, token)
	if err != nil {
		if _, stranger := d.authorize(h, r, token, false); stranger != nil {
			return nil, stranger
		}
		return nil, later("render the config document of "+h.Name, err)
	}
	counts := r.Counts(data, name)
	release, err := d.authorize(h, r, token, counts)
	if err != nil {
		return nil, err
	}
	doc, err := render(r, data, name)
	if err != nil {
		release()
		return nil, err
	}
	record := func(ctx context.Context, dur time.Duration) error {
		d.deps.Events.Record(event.Event{Kind: event.ConfigServed, MAC: mac, Addr: from, Host: h.Name, Detail: name, Bytes: int64(len(doc.Body)), Dur: dur})
		if !counts {
			return nil
		}
		return d.deps.Installs.ConfigRead(ctx, h, token)
	}
	return NewDocument(doc.ContentType, doc.Body, record, release), nil
}

// authorize keeps a read of the config document for the caller. What else belongs to the boot may be read as often as its
// installer likes, before and after.
func (d *Desk) authorize(h *lab.Host, r *recipe.Recipe, token string, counts bool) (release func(), err error) {
	if counts {
		release, err = d.deps.Installs.Read(h, token, r.Reads())
	} else {
		release, err = func() {}, d.deps.Installs.Authorize(h, token, 0)
	}
	switch {
	case errors.Is(err, install.ErrBusy):
		return nil, later("not for this boot of "+h.Name+" yet", err)
	case err != nil:
		return nil, forbidden("not for this boot of "+h.Name, err)
	}
	return release, nil
}

// render renders one document. One that is not there yet may come.
func render(r *recipe.Recipe, data recipe.Data, name string) (recipe.Document, error) {
	doc, err := r.Config(data, name)
	switch {
	case err == nil:
		return doc, nil
	case errors.Is(err, fs.ErrNotExist) && name != "" && !r.Knows(data, name):
		return recipe.Document{}, missing("no such document", err)
	default:
		return recipe.Document{}, later("render the config document of "+data.Host.Name, err)
	}
}

// owner returns the machine with that MAC if the request comes from the address that it holds.
func (d *Desk) owner(t *Table, mac lab.MAC, from netip.Addr) (*lab.Host, *recipe.Recipe, error) {
	h := d.machine(t, mac, from)
	if h == nil || h.Profile == nil {
		return nil, nil, forbidden("no machine of the lab has this MAC", nil)
	}
	if err := d.mayAsk(t, h, mac, from); err != nil {
		return nil, nil, err
	}
	return h, t.recipes[h.Profile], nil
}

// mayAsk reports whether a request from that address can be the machine's own. A script carries the boot's token, so it
// is held to this too. In a network whose addresses another DHCP server gives, nobody knows who holds which.
func (d *Desk) mayAsk(t *Table, h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if h.Network != nil && h.Network.DHCP != lab.DHCPServer {
		return nil
	}
	holds, ok := d.addrOf(t, mac)
	switch {
	case from == holds || from == h.IP || from == h.IP6:
		return nil
	case !ok:
		return forbidden(h.Name+" holds no address", nil)
	default:
		return forbidden("asked from "+from.String()+", but "+h.Name+" holds "+holds.String(), nil)
	}
}

// Done is called when an installer says that it is done.
func (d *Desk) Done(ctx context.Context, mac lab.MAC, token string, from netip.Addr) error {
	t := d.deps.Table()
	h, _, err := d.owner(t, mac, from)
	if err == nil {
		err = d.done(ctx, h, token)
	}
	if err != nil {
		d.refused(t, mac, from, "done", err, token)
	}
	return err
}

func (d *Desk) done(ctx context.Context, h *lab.Host, token string) error {
	err := d.deps.Installs.Done(ctx, h, token)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, install.ErrToken), errors.Is(err, install.ErrState):
		return forbidden("not for this boot of "+h.Name, err)
	default:
		return later("keep the state of "+h.Name, err)
	}
}
