package boot

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"time"

	"bootlab/internal/event"
	"bootlab/internal/install"
	"bootlab/internal/lab"
	"bootlab/internal/recipe"
)

// Leases say who holds which address.
type Leases interface {
	// AddrOf returns the address that mac holds.
	AddrOf(mac lab.MAC) (netip.Addr, bool)
}

// Deps are what the desk needs; all are required.
type Deps struct {
	Table    func() *Table
	Installs *install.Machine
	Leases   Leases
	Events   event.Recorder
}

// A Desk answers machines. It is safe for concurrent use.
type Desk struct {
	deps Deps
}

// New returns a desk.
func New(deps Deps) *Desk {
	switch {
	case deps.Table == nil:
		panic("boot: Deps.Table is nil")
	case deps.Installs == nil:
		panic("boot: Deps.Installs is nil")
	case deps.Leases == nil:
		panic("boot: Deps.Leases is nil")
	case deps.Events == nil:
		panic("boot: Deps.Events is nil")
	}
	return &Desk{deps: deps}
}

// machine returns who mac is in t: a host, or a guest of the pool that its address is from, or nil.
func (d *Desk) machine(t *Table, mac lab.MAC, from netip.Addr) *lab.Host {
	if addr, ok := d.deps.Leases.AddrOf(mac); ok {
		from = addr
	}
	return t.lab.MachineOf(mac, from)
}

// Script renders the script for the machine with that MAC: its installer, its own disk, or the reason why there is
// nothing for it. Asking for it begins a boot, which is durable when Script returns. name is only told to people.
func (d *Desk) Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) ([]byte, error) {
	t := d.deps.Table()
	script, detail, err := d.script(ctx, t, mac, from)
	e := event.Event{Kind: event.ScriptServed, MAC: mac, Addr: from, Detail: name + ": " + detail, Bytes: int64(len(script))}
	if err != nil {
		e.Kind, e.Detail, e.Err = event.ScriptRefused, name, err.Error()
	}
	d.deps.Events.Record(e)
	return script, err
}

func (d *Desk) script(ctx context.Context, t *Table, mac lab.MAC, from netip.Addr) (script []byte, detail string, err error) {
	h := d.machine(t, mac, from)
	if h == nil || h.Profile == nil {
		return recipe.Nothing(mac), "nothing in the lab for this machine", nil
	}
	if h.Profile.Kernel == "" && h.Profile.IPXE == "" {
		return recipe.LocalBoot(h.Name, "has nothing to boot from the network: starting from its own disk"), "local boot", nil
	}
	if err := d.mayAsk(h, mac, from); err != nil {
		return nil, "", err
	}
	r := t.recipes[h.Profile]
	data, err := r.Data(t.lab, h, mac, "")
	if err != nil {
		return nil, "", later("render the script of "+h.Name, err)
	}
	ticket, err := d.deps.Installs.Boot(ctx, h, r.Done(data).Has(recipe.Callback))
	switch {
	case err != nil:
		return nil, "", later("keep the state of this boot", err)
	case ticket.Held:
		return recipe.LocalBoot(h.Name, "keeps installing and is held: starting from its own disk"), "local boot, held", nil
	case ticket.LocalBoot:
		return recipe.LocalBoot(h.Name, "is installed: starting from its own disk"), "local boot", nil
	}
	data, err = r.Data(t.lab, h, mac, ticket.Token)
	if err == nil {
		script, err = r.Script(data)
	}
	if err != nil {
		return nil, "", later("render the script of "+h.Name, err)
	}
	return script, "profile " + h.Profile.Name, nil
}

// Config renders the config document for a request that comes from `from` and carries token. Every error is a *Refusal
// and was told to the event bus.
func (d *Desk) Config(_ context.Context, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	t := d.deps.Table()
	doc, err := d.config(t, mac, token, name, from)
	if err != nil {
		d.deps.Events.Record(event.Event{Kind: event.ConfigRefused, MAC: mac, Addr: from, Detail: name, Err: err.Error()})
		return nil, err
	}
	return &Document{ContentType: doc.ContentType, Body: doc.Body}, nil
}

func (d *Desk) config(t *Table, mac lab.MAC, token, name string, from netip.Addr) (recipe.Document, error) {
	h, r, err := d.owner(t, mac, from)
	if err != nil {
		return recipe.Document{}, err
	}
	if err := d.deps.Installs.Authorize(h, token, r.Reads()); err != nil {
		return recipe.Document{}, forbidden("not for this boot of "+h.Name, err)
	}
	data, err := r.Data(t.lab, h, mac, token)
	if err != nil {
		return recipe.Document{}, later("render the config document of "+h.Name, err)
	}
	doc, err := r.Config(data, name)
	switch {
	case err == nil:
		return doc, nil
	case errors.Is(err, fs.ErrNotExist) && !knownName(r, data, name):
		return recipe.Document{}, missing("no such document", err)
	default:
		return recipe.Document{}, later("render the config document of "+h.Name, err)
	}
}

// knownName reports whether name is that of the document itself, which only is not there yet.
func knownName(r *recipe.Recipe, d recipe.Data, name string) bool {
	return name == "" || r.IsConfig(d, name)
}

// owner returns the machine with that MAC if the request comes from the address that it holds.
func (d *Desk) owner(t *Table, mac lab.MAC, from netip.Addr) (*lab.Host, *recipe.Recipe, error) {
	h := d.machine(t, mac, from)
	if h == nil || h.Profile == nil {
		return nil, nil, forbidden("no machine of the lab has this MAC", nil)
	}
	if err := d.mayAsk(h, mac, from); err != nil {
		return nil, nil, err
	}
	return h, t.recipes[h.Profile], nil
}

// mayAsk reports whether a request from that address can be the machine's own. A script carries the boot's token, so it
// is held to this too. In a network whose addresses another DHCP server gives, nobody knows who holds which.
func (d *Desk) mayAsk(h *lab.Host, mac lab.MAC, from netip.Addr) error {
	if h.Network != nil && h.Network.DHCP != lab.DHCPServer {
		return nil
	}
	holds, ok := d.deps.Leases.AddrOf(mac)
	switch {
	case from == holds || from == h.IP || from == h.IP6:
		return nil
	case !ok:
		return forbidden(h.Name+" holds no address", nil)
	default:
		return forbidden("asked from "+from.String()+", but "+h.Name+" holds "+holds.String(), nil)
	}
}

// ConfigRead is called after the whole of a document was sent: n bytes in dur. It is durable when it returns.
func (d *Desk) ConfigRead(ctx context.Context, mac lab.MAC, token, name string, from netip.Addr, n int64, dur time.Duration) error {
	t := d.deps.Table()
	h, r, err := d.owner(t, mac, from)
	if err != nil {
		return err
	}
	d.deps.Events.Record(event.Event{Kind: event.ConfigServed, MAC: mac, Addr: from, Host: h.Name, Detail: name, Bytes: n, Dur: dur})
	if !r.Counts(name) {
		return nil
	}
	return d.deps.Installs.ConfigRead(ctx, h, token)
}

// Done is called when an installer says that it is done.
func (d *Desk) Done(ctx context.Context, mac lab.MAC, token string, from netip.Addr) error {
	h, _, err := d.owner(d.deps.Table(), mac, from)
	if err == nil {
		err = d.done(ctx, h, token)
	}
	if err != nil {
		d.deps.Events.Record(event.Event{Kind: event.ConfigRefused, MAC: mac, Addr: from, Detail: "done", Err: err.Error()})
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
