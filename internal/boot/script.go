package boot

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Script is what a machine boots, as text.
type Script struct {
	Body     []byte
	received func(context.Context) error
}

// NewScript returns a script. received is what Received does; it may be nil.
func NewScript(body []byte, received func(context.Context) error) *Script {
	return &Script{body, received}
}

// Received must be called once the machine has shown that it received the script: a request alone can be anybody's. The boot begins, or
// what else the script means becomes true. It is durable when Received returns.
func (s *Script) Received(ctx context.Context) error {
	if s.received == nil {
		return nil
	}
	return s.received(ctx)
}

// Script renders the script for the machine with that MAC: its installer, its own disk, or why there is nothing for it. It changes no
// state before Script.Received. name selects the boot loader: lab.GRUBName is GRUB's, any other iPXE's.
func (s *Service) Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) (*Script, error) {
	return s.scriptOf(ctx, mac, from, name, nil)
}

// Datagrams renders scripts for requests that are single datagrams, as those of TFTP. Anybody can send one with the address of a machine, and
// acknowledge the answer without receiving it, at every port at which the transfer may wait.
type Datagrams struct{ service *Service }

// ByDatagram returns the service for such requests.
func (s *Service) ByDatagram() Datagrams { return Datagrams{s} }

// Script is Service.Script. That a request was refused is recorded as unverified.
func (d Datagrams) Script(ctx context.Context, mac lab.MAC, from netip.AddrPort, name string) (*Script, error) {
	return d.service.scriptOf(ctx, mac, from.Addr(), name, &datagram{from, time.Now()})
}

// A datagram is the request for a script that is one.
type datagram struct {
	from     netip.AddrPort
	answered time.Time // when it began to be
}

// scriptOf is Script; by is the request if it is a datagram, else nil.
func (s *Service) scriptOf(ctx context.Context, mac lab.MAC, from netip.Addr, name string, by *datagram) (*Script, error) {
	t := s.deps.Table()
	d, err := s.script(ctx, t, mac, from, loaderOf(name))
	if err != nil {
		s.recordRefusal(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: name, Unverified: by != nil}, err)
		return nil, err
	}
	e := event.Event{Kind: event.ScriptServed, MAC: mac, Addr: from, Detail: name + ": " + d.what, Bytes: int64(len(d.body))}
	if d.loops {
		e.Kind, e.Detail, e.Err = event.ScriptLoop, name, fmt.Sprintf("%d times within %s; for %s it gets a script that shows this: fix its own, or what that loads",
			bootloop.MaxScripts, bootloop.Window, bootloop.RemedyTime)
	}
	return NewScript(d.body, func(ctx context.Context) error {
		// By TFTP the script may have gone to a machine that took the address since.
		err := s.verifyReceived(t, d.host, mac, from)
		verified := true
		if err == nil && by != nil {
			verified, err = s.verifyDatagram(d.host, by)
		}
		if err != nil {
			s.recordRefusal(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: name}, err)
			return err
		}
		e.Unverified = !verified
		s.deps.Events.Record(e)
		if d.received == nil {
			return nil
		}
		return d.received(ctx, verified)
	}), nil
}

// A reply is what a machine that asks for its script is sent.
type reply struct {
	host     *lab.Host // whose boot begins; nil: none does
	body     []byte
	what     string // for people
	loops    bool   // the script holds a machine in a boot loop
	received func(ctx context.Context, verified bool) error
}

func (s *Service) script(ctx context.Context, t *Table, mac lab.MAC, from netip.Addr, l loader) (reply, error) {
	h := s.asking(t, mac, from)
	if h == nil || h.Profile == nil {
		return reply{body: l.nothing(mac), what: "nothing in the lab for this machine"}, nil
	}
	switch {
	case !h.BootsFrom(mac):
		return reply{body: l.local(h, "does not boot from this NIC"), what: "local boot, not its boot NIC"}, nil
	case h.Profile.OS == lab.OSDiscover && h.Network != nil:
		return reply{body: l.discover(mac, h.Network.BaseURL), what: "discovery"}, nil
	case !h.Profile.NetBoots():
		return reply{body: l.local(h, "has nothing to boot from the network"), what: "local boot"}, nil
	}
	if err := s.verifyRequest(t, h, mac, from); err != nil {
		return reply{}, err
	}
	// Where DHCP does not answer, the requests of an operating system are not seen here, and every reboot would look like a loop.
	counts := h.Network != nil && h.Network.Answers(h)
	if counts && s.deps.Loops.ScriptLoops(mac) {
		why := fmt.Sprintf("requested its script %d times within %s and no system started; fix the script, or what it loads", bootloop.MaxScripts, bootloop.Window)
		return reply{body: l.bootLoop(h.Name, why), loops: true}, nil
	}
	out, decision, err := s.install(ctx, t, h, mac, l)
	out.host = h
	out.received = func(ctx context.Context, verified bool) error {
		if counts {
			s.deps.Loops.ScriptReceived(mac)
		}
		if !verified {
			return s.deps.Installs.Acknowledged(ctx, h, decision, !t.recipes[h.Profile].Answers())
		}
		s.repeated.forget(decision.Token)
		return s.deps.Installs.Received(ctx, h, decision)
	}
	return out, err
}

// install decides between the installer of h and its disk.
func (s *Service) install(ctx context.Context, t *Table, h *lab.Host, mac lab.MAC, l loader) (out reply, decision install.Decision, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	decision, err = s.deps.Installs.Boot(ctx, h, install.Request{NIC: mac, Prepare: func() (install.Signals, error) { return t.prepare(h, mac) }})
	refusal := (*Refusal)(nil)
	switch {
	case errors.As(err, &refusal):
		s.noteOutcome(t, h, err)
		return out, decision, refusal
	case err != nil:
		return out, decision, notStored("keep the state of this boot", err)
	case decision.Held:
		return reply{body: l.local(h, "is held, not installed (bootlab install "+h.Name+")"), what: "local boot, held"}, decision, nil
	case decision.Unknown != "":
		return reply{body: l.local(h, "has lost its install state (bootlab install "+h.Name+" --done if it has a system)"), what: "local boot, install state unknown"}, decision, nil
	case decision.LocalBoot:
		return reply{body: l.local(h, "is installed"), what: "local boot"}, decision, nil
	}
	out.what = "profile " + h.Profile.Name
	out.body, err = s.render(t, h, mac, decision.Token, l)
	s.noteOutcome(t, h, err)
	return out, decision, err
}

// prepare returns the signals that complete an install of h. The error is a *Refusal: the machine would not get far, as its script or
// a document cannot be rendered or is invalid. It must not begin a boot, let alone wipe its disk. A document that does not exist yet
// is no error.
func (t *Table) prepare(h *lab.Host, mac lab.MAC) (install.Signals, error) {
	r := t.recipes[h.Profile]
	data, err := r.Data(t.lab, h, mac, "")
	if err == nil {
		err = firstFault(r, data)
	}
	if err != nil {
		return 0, unrendered("what "+h.Name+" boots", err)
	}
	return r.Signals(data), nil
}

// firstFault returns the first error of what a machine boots.
func firstFault(r *recipe.Recipe, data recipe.Data) error {
	if faults := r.Faults(data); len(faults) > 0 {
		return faults[0].Err
	}
	return nil
}

// render returns the script of a boot. It is rendered once, unless it is a file, which may change at any time.
func (s *Service) render(t *Table, h *lab.Host, mac lab.MAC, token string, l loader) ([]byte, error) {
	key := scriptKey{mac, h.IP, l.grub}
	if body, ok := s.scripts.find(t, key, token); ok {
		return body, nil
	}
	r := t.recipes[h.Profile]
	data, err := r.Data(t.lab, h, mac, token)
	if err != nil {
		return nil, unrendered("the script of "+h.Name, err)
	}
	body, err := l.script(r, data)
	if err != nil {
		return nil, unrendered("the script of "+h.Name, err)
	}
	s.rendered.keep(mac, token, rendering{h.Profile, r.Bare(), data}, func(token string) bool { return s.deps.Installs.Knows(h, token) })
	if h.Profile.IPXE == "" {
		s.scripts.keep(t, key, token, body)
	}
	return body, nil
}

// A loader writes scripts in the language of a boot loader.
type loader struct {
	grub      bool
	script    func(*recipe.Recipe, recipe.Data) ([]byte, error)
	localBoot func(host, why string, how lab.LocalBoot) []byte
	bootLoop  func(host, why string) []byte
	nothing   func(lab.MAC) []byte
	discover  func(mac lab.MAC, base string) []byte
}

// local returns the script that starts h from its own disk.
func (l loader) local(h *lab.Host, why string) []byte {
	return l.localBoot(h.Name, why+": starting from its own disk", h.Local)
}

// loaderOf returns the loader that asks for a script of that name.
func loaderOf(name string) loader {
	if name == lab.GRUBName {
		return loader{
			grub: true, script: (*recipe.Recipe).GRUB, localBoot: recipe.GRUBLocalBoot, bootLoop: recipe.GRUBBootLoop, nothing: recipe.GRUBNothing,
			discover: func(mac lab.MAC, _ string) []byte { return recipe.GRUBNothing(mac) },
		}
	}
	return loader{script: (*recipe.Recipe).Script, localBoot: recipe.LocalBoot, bootLoop: recipe.BootLoop, nothing: recipe.Nothing, discover: recipe.Discover}
}

// A scriptCache holds the scripts of boots under way. Firmware asks for its script more than once: iPXE for autoexec.ipxe first, GRUB
// by HTTP and by TFTP, a machine with several NICs by each of them, and one that cannot boot all day.
type scriptCache struct {
	mu      sync.Mutex
	table   *Table // that the scripts were rendered from
	scripts map[scriptKey]cachedScript
}

// A scriptKey is which machine asks for a script, and its boot loader.
type scriptKey struct {
	mac  lab.MAC
	addr netip.Addr // the host's own, which is in the script
	grub bool
}

type cachedScript struct {
	token string // of the boot
	body  []byte // immutable
}

// maxScripts bounds the cache, at a KiB each. A full cache is emptied.
const maxScripts = 4096

// find returns the script of the boot with that token, if it was rendered from t.
func (c *scriptCache) find(t *Table, k scriptKey, token string) (body []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.scripts[k]
	return s.body, c.table == t && s.token == token && token != ""
}

func (c *scriptCache) keep(t *Table, k scriptKey, token string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table != t || len(c.scripts) >= maxScripts {
		c.table, c.scripts = t, map[scriptKey]cachedScript{}
	}
	c.scripts[k] = cachedScript{token, body}
}
