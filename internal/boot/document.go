package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
)

// A Document is a rendered config document and one machine's read of it. It is from one table: a reload while it is sent changes
// neither.
type Document struct {
	ContentType string
	Body        []byte
	record      func(ctx context.Context, dur time.Duration) error
	release     func()
}

// NewDocument returns a document. record is what Read does, release what Release does; each may be nil.
func NewDocument(contentType string, body []byte, record func(ctx context.Context, dur time.Duration) error, release func()) *Document {
	return &Document{contentType, body, record, release}
}

// Read records that the whole document was sent, in dur. It is durable when Read returns.
func (d *Document) Read(ctx context.Context, dur time.Duration) error {
	if d.record == nil {
		return nil
	}
	return d.record(ctx, dur)
}

// Release ends the read. It must be called for every document, sent or not, and after Read.
func (d *Document) Release() {
	if d.release != nil {
		d.release()
	}
}

// Config renders the config document for a request that comes from that address and carries token. Every error is a *Refusal and was
// recorded as an event; what one boot repeats is recorded once.
func (s *Service) Config(ctx context.Context, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	t := s.deps.Table()
	doc, err := s.config(ctx, t, mac, token, name, from)
	if err != nil {
		s.refused(t, mac, from, name, err, token)
		return nil, err
	}
	return doc, nil
}

// Answer renders the config document of the machine that has one of these MACs and asks from that address. It is for installers that
// cannot be given a token: Proxmox' learns a URL from DHCP, the same for all machines, and posts which NICs it found. All other
// conditions are those of Config: a boot is under way, and the document was not read as often as one boot may.
func (s *Service) Answer(ctx context.Context, macs []lab.MAC, from netip.Addr) (*Document, error) {
	t := s.deps.Table()
	for _, mac := range macs {
		c, err := s.owner(t, mac, from)
		if err != nil || !c.recipe.Answers() {
			continue
		}
		doc, err := s.answer(ctx, t, c)
		if err != nil {
			s.refused(t, mac, from, lab.PathAnswer, err, "")
		}
		return doc, err
	}
	err := forbidden(event.UnknownMachine, "no machine of the lab that asks for an answer has one of these NICs and this address", nil)
	e := event.Event{Kind: event.ConfigRefused, Addr: from, Detail: lab.PathAnswer}
	if len(macs) > 0 {
		e.MAC = macs[0]
	}
	s.recordRefusal(t, e, err)
	return nil, err
}

func (s *Service) answer(ctx context.Context, t *Table, c client) (*Document, error) {
	token, err := s.deps.Installs.Token(ctx, c.host)
	if err != nil {
		return nil, forbidden(notThisBoot(err), "not for "+c.host.Name+" now", err)
	}
	from, err := s.renderingOf(t, c, token, "")
	if err != nil {
		return nil, unrendered("the config document of "+c.host.Name, err)
	}
	name, err := from.recipe.ConfigName(from.data)
	if err != nil {
		return nil, unrendered("the config document of "+c.host.Name, err)
	}
	return s.document(ctx, t, c, token, name)
}

func (s *Service) config(ctx context.Context, t *Table, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	c, err := s.owner(t, mac, from)
	if err != nil {
		return nil, err
	}
	return s.document(ctx, t, c, token, name)
}

// document renders a config document for c.
func (s *Service) document(ctx context.Context, t *Table, c client, token, name string) (*Document, error) {
	h := c.host
	stores, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if err := s.deps.Installs.Confirm(stores, h, token); err != nil {
		return nil, notStored("keep the state of this boot", err)
	}
	from, err := s.renderingOf(t, c, token, name)
	if err != nil {
		if wrong := s.deps.Installs.Authorize(h, token, 0); wrong != nil {
			return nil, readRefusal(h, wrong)
		}
		return nil, unrendered("the config document of "+h.Name, err)
	}
	// The other documents of a boot may be read any number of times, before and after.
	counts, release := from.recipe.Counts(from.data, name), func() {}
	if counts {
		release, err = s.deps.Installs.Read(h, token, from.recipe.Reads())
	} else {
		err = s.deps.Installs.Authorize(h, token, 0)
	}
	if err != nil {
		return nil, readRefusal(h, err)
	}
	doc, err := render(from.recipe, from.data, name)
	if err != nil && from.profile != h.Profile {
		doc, err = t.repaired(c, token, name, counts, err)
	}
	s.noteOutcome(t, h, err)
	if err != nil {
		release()
		return nil, err
	}
	record := func(ctx context.Context, dur time.Duration) error {
		s.deps.Events.Record(event.Event{Kind: event.ConfigServed, MAC: c.mac, Addr: c.addr, Host: h.Name, Detail: name, Bytes: int64(len(doc.Body)), Dur: dur})
		if !counts {
			return nil
		}
		return s.deps.Installs.ConfigRead(ctx, h, token)
	}
	return NewDocument(doc.ContentType, doc.Body, record, release), nil
}

// readRefusal returns the refusal of a read that the install state of h does not allow.
func readRefusal(h *lab.Host, err error) error {
	if errors.Is(err, install.ErrBusy) {
		return unavailable(notThisBoot(err), "not for this boot of "+h.Name+" yet", err)
	}
	return forbidden(notThisBoot(err), "not for this boot of "+h.Name, err)
}

// render renders one document. One of the profile that does not exist yet may be created: 503.
func render(r *recipe.Recipe, data recipe.Data, name string) (recipe.Document, error) {
	doc, err := r.Config(data, name)
	switch {
	case err == nil:
		return doc, nil
	case errors.Is(err, fs.ErrNotExist) && name != "" && !r.Knows(data, name):
		return recipe.Document{}, &Refusal{http.StatusNotFound, event.NotFound, "no such document", err}
	default:
		return recipe.Document{}, unrendered("the config document of "+data.Host.Name, err)
	}
}

// A Refusal is a request that the service refuses. Its message says why, for the log and the timeline; the machine gets the status
// only.
type Refusal struct {
	Status int // HTTP
	Reason event.Reason
	Text   string
	Err    error // may be nil
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Text
	}
	return fmt.Sprintf("%s: %v", r.Text, r.Err)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// storeWait is how long a machine that asks for its script or document waits for the disk. Then the answer asks it to try again: a disk
// that hangs may do so for hours.
const storeWait = 10 * time.Second

// notStored is the refusal of what could not be stored.
func notStored(what string, err error) *Refusal {
	if errors.Is(err, context.DeadlineExceeded) {
		err = store.ErrHung
	}
	return unavailable(event.NotStored, what, err)
}

// HTTPStatus returns the status by which the machine knows whether to retry: Ignition repeats its request after 503 and gives up after
// any status below 500.
func (r *Refusal) HTTPStatus() int { return r.Status }

func forbidden(reason event.Reason, text string, err error) *Refusal {
	return &Refusal{http.StatusForbidden, reason, text, err}
}

func unavailable(reason event.Reason, text string, err error) *Refusal {
	return &Refusal{http.StatusServiceUnavailable, reason, text, err}
}

// unrendered is the refusal of what has an error, or does not exist yet: 503, so that the machine asks again.
func unrendered(what string, err error) *Refusal {
	reason := event.NotRendered
	if errors.Is(err, fs.ErrNotExist) {
		reason = event.NotFound
	}
	return unavailable(reason, "render "+what, err)
}

// reasonOf returns why err refuses a request; empty: it does not say.
func reasonOf(err error) event.Reason {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

// notThisBoot returns why an installation does not allow what a machine asks for.
func notThisBoot(err error) event.Reason {
	switch {
	case errors.Is(err, install.ErrBusy):
		return event.BeingRead
	case errors.Is(err, install.ErrReads):
		return event.AlreadyRead
	case errors.Is(err, install.ErrToken):
		return event.WrongToken
	}
	return event.NoBoot
}
