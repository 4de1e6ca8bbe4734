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
		a, err := s.owner(t, mac, from)
		if err != nil || !a.recipe.Answers() {
			continue
		}
		doc, err := s.answer(ctx, t, a)
		if err != nil {
			s.refused(t, mac, from, lab.PathAnswer, err, "")
		}
		return doc, err
	}
	err := forbidden("no machine of the lab that asks for an answer has one of these NICs and this address", nil)
	e := event.Event{Kind: event.ConfigRefused, Addr: from, Detail: lab.PathAnswer, Err: err.Error()}
	if len(macs) > 0 {
		e.MAC = macs[0]
	}
	s.recordRefusal(t, e, err)
	return nil, err
}

func (s *Service) answer(ctx context.Context, t *Table, a asker) (*Document, error) {
	token, err := s.deps.Installs.Token(ctx, a.host)
	if err != nil {
		return nil, forbidden("not for "+a.host.Name+" now", err)
	}
	data, err := a.recipe.Data(t.lab, a.host, a.mac, token)
	if err != nil {
		return nil, unavailable("render the config document of "+a.host.Name, err)
	}
	name, err := a.recipe.ConfigName(data)
	if err != nil {
		return nil, unavailable("render the config document of "+a.host.Name, err)
	}
	return s.document(ctx, t, a, token, name)
}

func (s *Service) config(ctx context.Context, t *Table, mac lab.MAC, token, name string, from netip.Addr) (*Document, error) {
	a, err := s.owner(t, mac, from)
	if err != nil {
		return nil, err
	}
	return s.document(ctx, t, a, token, name)
}

// document renders a config document for a machine that has shown that it is there: an installer answers ARP, unlike some firmware. Else a
// neighbour could put the machine's MAC into the kernel's table while the machine is off.
func (s *Service) document(ctx context.Context, t *Table, a asker, token, name string) (*Document, error) {
	h, r := a.host, a.recipe
	if a.silent {
		return nil, unavailable("asked from "+a.addr.String()+", where "+h.Name+" does not answer ARP", nil)
	}
	if err := s.deps.Installs.Confirm(ctx, h, token); err != nil {
		return nil, unavailable("keep the state of this boot", err)
	}
	data, err := r.Data(t.lab, h, a.mac, token)
	if err != nil {
		if _, wrong := s.authorize(h, r, token, false); wrong != nil {
			return nil, wrong
		}
		return nil, unavailable("render the config document of "+h.Name, err)
	}
	counts := r.Counts(data, name)
	release, err := s.authorize(h, r, token, counts)
	if err != nil {
		return nil, err
	}
	doc, err := render(r, data, name)
	if err != nil {
		release()
		return nil, err
	}
	record := func(ctx context.Context, dur time.Duration) error {
		s.deps.Events.Record(event.Event{Kind: event.ConfigServed, MAC: a.mac, Addr: a.addr, Host: h.Name, Detail: name, Bytes: int64(len(doc.Body)), Dur: dur})
		if !counts {
			return nil
		}
		return s.deps.Installs.ConfigRead(ctx, h, token)
	}
	return NewDocument(doc.ContentType, doc.Body, record, release), nil
}

// authorize reserves a read of the config document, which release ends. The other documents of a boot may be read any number of times,
// before and after.
func (s *Service) authorize(h *lab.Host, r *recipe.Recipe, token string, counts bool) (release func(), err error) {
	if counts {
		release, err = s.deps.Installs.Read(h, token, r.Reads())
	} else {
		release, err = func() {}, s.deps.Installs.Authorize(h, token, 0)
	}
	switch {
	case errors.Is(err, install.ErrBusy):
		return nil, unavailable("not for this boot of "+h.Name+" yet", err)
	case err != nil:
		return nil, forbidden("not for this boot of "+h.Name, err)
	}
	return release, nil
}

// render renders one document. One of the profile that does not exist yet may be created: 503.
func render(r *recipe.Recipe, data recipe.Data, name string) (recipe.Document, error) {
	doc, err := r.Config(data, name)
	switch {
	case err == nil:
		return doc, nil
	case errors.Is(err, fs.ErrNotExist) && name != "" && !r.Knows(data, name):
		return recipe.Document{}, &Refusal{http.StatusNotFound, "no such document", err}
	default:
		return recipe.Document{}, unavailable("render the config document of "+data.Host.Name, err)
	}
}

// A Refusal is a request that the service refuses. Its message says why, for the log and the timeline; the machine gets the status
// only.
type Refusal struct {
	Status int // HTTP
	Reason string
	Err    error // may be nil
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Reason
	}
	return fmt.Sprintf("%s: %v", r.Reason, r.Err)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// HTTPStatus returns the status by which the machine knows whether to retry: Ignition repeats its request after 503 and gives up after
// any status below 500.
func (r *Refusal) HTTPStatus() int { return r.Status }

func forbidden(reason string, err error) *Refusal { return &Refusal{http.StatusForbidden, reason, err} }
func unavailable(reason string, err error) *Refusal {
	return &Refusal{http.StatusServiceUnavailable, reason, err}
}
