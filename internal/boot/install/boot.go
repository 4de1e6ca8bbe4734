package install

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Request is a machine's request for its script.
type Request struct {
	NIC lab.MAC // that boots
	// Prepare is called before a boot is promised; not where one goes on, nor for a machine that starts from its disk. It returns the
	// completion signals of this install. Its error keeps the boot from beginning. Nil: no signals.
	Prepare func() (Signals, error)
}

func (r Request) prepare() (Signals, error) {
	if r.Prepare == nil {
		return 0, nil
	}
	return r.Prepare()
}

// A Decision is what a boot gets: the installer with a token, or the disk.
type Decision struct {
	LocalBoot bool   // start from the disk; there is no token
	Held      bool   // LocalBoot because the loop detector stopped the install
	Unknown   string // LocalBoot because the install state was lost: since when, and what to do; empty: it is known
	Token     string // for the config document and the callback of this boot

	nic lab.MAC // that requested the script
}

// A requested boot has a script that its machine may have received. It changes nothing before the machine has shown that it did: anybody
// on the network can send a request in the machine's name. It is stored, as a daemon that is killed must know the token.
type requested struct {
	At      time.Time `json:"at"` // of the last token
	NIC     lab.MAC   `json:"nic,omitzero"`
	Signals Signals   `json:"signals,omitempty"`
	Tokens  []sum     `json:"tokens"` // of scripts that were sent, the oldest first
}

// knows reports whether token is one of r, which may be nil.
func (r *requested) knows(token string) bool { return r != nil && knows(r.Tokens, token) }

// without returns what is left of r when the boot with that token begins; nil: nothing.
func (r *requested) without(token string) *requested {
	left := *r
	left.Tokens = slices.DeleteFunc(slices.Clone(r.Tokens), func(s sum) bool { return s == sumOf(token) })
	if len(left.Tokens) == 0 {
		return nil
	}
	return &left
}

// Boot is called when h requests its script. It decides between installer and disk, and makes the token of the boot, which is durable
// when it returns. All else, the token of an installer that runs too, stays as it is until Received. An error of req.Prepare is
// returned as it is.
func (m *Machine) Boot(ctx context.Context, h *lab.Host, req Request) (Decision, error) {
	end, err := m.locks.take(ctx, h.Name)
	if err != nil {
		return Decision{}, err
	}
	defer end()
	s := m.status(h)
	switch o := m.script(h, s, req.NIC); {
	case o.disk:
		return Decision{LocalBoot: true, Held: o.held, Unknown: o.status.unknownText(h.Name)}, nil
	case o.same && m.plainOf(h).boot != "":
		return Decision{Token: m.plainOf(h).boot, nic: req.NIC}, nil
	}
	return m.request(ctx, h, s, req)
}

// Received is called once h has shown that it received the script of t: it acknowledged it, or uses its token. What Boot has decided
// becomes true: a boot begins, with the token of t as its only one; an installer counts as done, if this boot is the signal; or the host
// is held after too many boots. What an admin decided meanwhile stands. A second call is no error.
func (m *Machine) Received(ctx context.Context, h *lab.Host, t Decision) error {
	return m.received(ctx, h, t, nil)
}

// Acknowledged is Received where the acknowledgement may be a blind guess: a machine behind a router received its script by TFTP. It ends no
// boot and no install, and holds no host. If the machine will use the token in its script, the boot begins then; else it begins now, unless one
// is under way. takesToken is whether its installer can be given a token.
func (m *Machine) Acknowledged(ctx context.Context, h *lab.Host, t Decision, takesToken bool) error {
	return m.received(ctx, h, t, func(s Status) bool {
		usesToken := takesToken && (h.Profile.Config != "" || s.Requested.Signals.Has(Callback))
		return !usesToken && s.State != Booting && s.State != Installing
	})
}

// received is Received, without a step that mayBegin does not allow; nil: all may be made.
func (m *Machine) received(ctx context.Context, h *lab.Host, t Decision, mayBegin func(Status) bool) error {
	end, err := m.locks.take(ctx, h.Name)
	if err != nil {
		return err
	}
	defer end()
	s, r := m.status(h), m.status(h).Requested
	if t.Token != "" && !r.knows(t.Token) {
		return nil // of the boot under way, or of one that an admin ended
	}
	verified := mayBegin == nil
	if o := m.nextBoot(h, s); o.by != notEnded && verified {
		done := o.status
		done.Requested = r // it begins in the next step
		if err := m.finish(ctx, h, s, done, o.by); err != nil {
			return err
		}
		s = done
	}
	switch {
	case t.Token != "" && (verified || mayBegin(s)):
		return m.begin(ctx, h, s, r, t)
	case t.Token != "":
		return nil // it begins when the token is used
	case s.State == Unknown:
		m.emit(event.InstallUnknown, h, s.unknownText(h.Name))
	case s.localBoot(h):
		m.emit(event.InstallLocalBoot, h, "")
	case t.Held && verified && m.loops(s):
		return m.hold(ctx, h, s)
	}
	return nil
}

// Confirm is Received for a request that carries token. It does nothing for a token that belongs to no requested boot.
func (m *Machine) Confirm(ctx context.Context, h *lab.Host, token string) error {
	r := m.status(h).Requested
	if !r.knows(token) {
		return nil
	}
	return m.Received(ctx, h, Decision{Token: token, nic: r.NIC})
}

// FirmwareUp is called when firmware asks for an address by a NIC of h. With local_boot: none DHCP withholds the boot file of a host that starts
// from its disk, so that no script is received: the request itself then ends the install, or holds the host.
func (m *Machine) FirmwareUp(ctx context.Context, h *lab.Host, nic lab.MAC) error {
	if h.Local != lab.LocalBootNone || !h.BootsFrom(nic) {
		return nil
	}
	return m.transition(ctx, h, func(s Status) error {
		switch o := m.script(h, s, nic); {
		case o.by != notEnded:
			return m.finish(ctx, h, s, o.status, o.by)
		case o.held && !s.Held:
			return m.hold(ctx, h, s)
		}
		return nil
	})
}

// An outcome is what a host boots: its installer or its disk.
type outcome struct {
	disk   bool
	held   bool   // disk, as an install began too often, or a restore holds the host
	same   bool   // the installer, in the boot that is under way
	by     end    // of the install under way, for which this boot is the signal; notEnded: it is none
	status Status // of the host then, before a boot begins
}

// nextBoot returns the outcome of a boot of h in status s that begins now. It changes nothing.
func (m *Machine) nextBoot(h *lab.Host, s Status) outcome {
	o := outcome{status: s}
	var why string
	if why, o.by = m.ended(h, s, m.deps.Now()); o.by != notEnded {
		o.status = m.installed(s, o.by, why)
	}
	o.held = o.status.Held || m.loops(o.status)
	o.disk = o.held || o.status.localBoot(h)
	return o
}

// script returns the outcome of a request for a script by a NIC now: of a boot that begins, or of the one under way. It changes nothing.
func (m *Machine) script(h *lab.Host, s Status, nic lab.MAC) outcome {
	o := m.nextBoot(h, s)
	if m.sameBoot(o.status, nic, m.deps.Now()) {
		o.disk, o.held, o.same = false, false, true
	}
	return o
}

// sameBoot reports whether a script requested now belongs to the boot that is under way: firmware that asks twice, or another NIC of
// the machine.
func (m *Machine) sameBoot(s Status, nic lab.MAC, now time.Time) bool {
	if !s.underWay() || len(s.Tokens) == 0 || now.Sub(s.Minted) >= sameBoot {
		return false
	}
	return s.Reads == 0 || nic != s.NIC
}

// Token returns a token of the boot of h that is under way, for an installer that cannot be given one. It returns ErrState if no boot
// is under way. After a restart of the daemon the token is known by its hash only, and another is added.
func (m *Machine) Token(ctx context.Context, h *lab.Host) (string, error) {
	end, err := m.locks.take(ctx, h.Name)
	if err != nil {
		return "", err
	}
	defer end()
	s := m.status(h)
	if !s.underWay() || len(s.Tokens) == 0 {
		return "", ErrState
	}
	plain := m.plainOf(h)
	if plain.boot != "" {
		return plain.boot, nil
	}
	plain.boot = rand.Text()
	return plain.boot, m.put(ctx, h, s, s.withToken(plain.boot), plain)
}

// request returns the decision about the requested boot, which is made unless the last request was just before. A script that belongs to the
// boot under way is such a request too where the daemon was restarted: it knows only the hash of the boot's token.
func (m *Machine) request(ctx context.Context, h *lab.Host, s Status, req Request) (Decision, error) {
	now, plain := m.deps.Now(), m.plainOf(h)
	if r := s.Requested; r != nil && plain.requested != "" && now.Sub(r.At) < sameBoot {
		return Decision{Token: plain.requested, nic: req.NIC}, nil
	}
	signals, err := req.prepare()
	if err != nil {
		return Decision{}, err
	}
	plain.requested = rand.Text()
	r := &requested{At: now, NIC: req.NIC, Signals: signals}
	if s.Requested != nil {
		r.Tokens = s.Requested.Tokens // a slow client may receive its script only now
	}
	r.Tokens = withToken(r.Tokens, plain.requested)
	next := s
	next.Requested = r
	if err := m.put(ctx, h, s, next, plain); err != nil {
		return Decision{}, err
	}
	return Decision{Token: plain.requested, nic: req.NIC}, nil
}

// begin starts one more boot of an installer, with the token of t, which is one of r.
func (m *Machine) begin(ctx context.Context, h *lab.Host, s Status, r *requested, t Decision) error {
	now, next := m.deps.Now(), s
	same := m.sameBoot(s, t.nic, now) // it was requested before another script of the boot was received, or before a restart
	if same {
		next = s.withToken(t.Token)
	} else {
		next = Status{State: Booting, Since: now, Attempts: s.Attempts + 1, Signals: r.Signals, Minted: now, NIC: t.nic}.withToken(t.Token)
		switch s.State {
		case Live:
			next.State, next.Attempts = Live, 0
		case Installed: // install: always
			next.Attempts = 1
		}
		if next.runs(h) {
			next.Deadline = deadline(h, now)
		}
	}
	next.Requested = r.without(t.Token)
	if err := m.put(ctx, h, s, next, tokens{boot: t.Token}); err != nil {
		return err
	}
	if next.State == Booting && !same {
		m.emit(event.InstallBooting, h, h.Profile.Name)
	}
	return nil
}

// hold stops a host that installs again and again.
func (m *Machine) hold(ctx context.Context, h *lab.Host, s Status) error {
	held := s
	held.Held, held.Deadline, held.Requested = true, time.Time{}, nil
	if err := m.put(ctx, h, s, held, tokens{}); err != nil {
		return err
	}
	m.emit(event.InstallLoop, h, fmt.Sprintf("%d boots and not installed; fix the profile, then: bootlab install %s", s.Attempts, h.Name))
	return nil
}

// loops reports whether an install has begun too often. A live system may boot any number of times.
func (m *Machine) loops(s Status) bool {
	return s.State != Installed && s.Attempts >= m.cfg.Attempts
}
