package boot

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// maxDetail bounds, in bytes, the text of a request in an event: the client chooses it.
const maxDetail = 200

// refused records that a request for a document, or a "done", was refused. The text that the client chose is shortened and printable,
// and does not hold the token.
func (s *Service) refused(t *Table, mac lab.MAC, from netip.Addr, what string, err error, token string) {
	if repeats(err) && token != "" && !s.repeated.first(refusedRead{token, what, err.Error()}) {
		return
	}
	hide := func(text string) string {
		if token != "" {
			text = strings.ReplaceAll(text, token, "…")
		}
		return lab.Tidy(text, maxDetail)
	}
	s.recordRefusal(t, event.Event{Kind: event.ConfigRefused, MAC: mac, Addr: from, Detail: hide(what), Err: hide(err.Error())}, err)
}

// repeats reports whether a boot that is refused with err keeps asking: cloud-init asks eleven times for what it has read already,
// Ignition every few seconds, for hours, for a document that does not exist yet. That makes one event. A wrong token, or the request
// of another machine, makes an event each time.
func repeats(err error) bool {
	var refusal *Refusal
	if errors.Is(err, errConflict) || errors.Is(err, errOther) {
		return false
	}
	return errors.Is(err, install.ErrReads) || errors.As(err, &refusal) && refusal.Status == http.StatusServiceUnavailable
}

// repeatedRefusals holds which refusals are recorded.
type repeatedRefusals struct {
	mu       sync.Mutex
	recorded map[refusedRead]struct{}
}

// A refusedRead is the read of one document, by the boot with that token, that was refused for that reason.
type refusedRead struct{ token, name, why string }

// maxRefusals bounds repeatedRefusals; a full set is emptied. The tokens are right, so other machines cannot fill it.
const maxRefusals = 4096

// forget forgets the refusals of the boot with that token, which starts again.
func (r *repeatedRefusals) forget(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.recorded, func(read refusedRead, _ struct{}) bool { return read.token == token })
}

// first reports whether this refusal was not recorded yet.
func (r *repeatedRefusals) first(read refusedRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.recorded[read]; again {
		return false
	}
	if r.recorded == nil || len(r.recorded) >= maxRefusals {
		r.recorded = map[refusedRead]struct{}{}
	}
	r.recorded[read] = struct{}{}
	return true
}
