package boot

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// maxDetail is how many bytes of what a stranger asked for an event holds.
const maxDetail = 200

// refused tells of a request for what a boot alone may have. What a stranger chose is cut short and printable, and the
// token is not in it.
func (d *Desk) refused(t *Table, mac lab.MAC, from netip.Addr, what string, err error, token string) {
	if insists(err) && token != "" && !d.insisted.first(read{token, what, err.Error()}) {
		return
	}
	hide := func(s string) string {
		if token != "" {
			s = strings.ReplaceAll(s, token, "…")
		}
		return discovered.Tidy(s, maxDetail)
	}
	d.tellRefused(t, event.Event{Kind: event.ConfigRefused, MAC: mac, Addr: from, Detail: hide(what), Err: hide(err.Error())})
}

// tellRefused tells of a refusal, and whether it was the machine itself that was refused.
func (d *Desk) tellRefused(t *Table, e event.Event) {
	e.Claimed = d.claimed(t, e.MAC, e.Addr)
	d.deps.Events.Record(e)
}

// claimed reports whether a request comes from an address that is not known to be that machine's.
func (d *Desk) claimed(t *Table, mac lab.MAC, from netip.Addr) bool {
	if h := d.machine(t, mac, from); h != nil {
		return d.mayAsk(t, h, mac, from) != nil
	}
	return d.mayReport(t, mac, from) != nil
}

// insists reports whether a boot that is refused so asks again in vain: cloud-init eleven times for what it has read already,
// Ignition every few seconds, for hours, for what is not there yet. That is one piece of news. A guess at a token, or another's
// request, is always one.
func insists(err error) bool {
	var refusal *Refusal
	return errors.Is(err, install.ErrReads) || errors.As(err, &refusal) && refusal.Status == http.StatusServiceUnavailable
}

// insisted holds which documents the boots that they are for asked for in vain, and why in vain.
type insisted struct {
	mu    sync.Mutex
	reads map[read]struct{}
}

// A read is of one document by the boot with that token, refused for that reason.
type read struct{ token, name, why string }

// maxInsisted bounds what is remembered; then it begins anew. The token was right, so no stranger fills it.
const maxInsisted = 4096

// first reports whether this is the first time that the boot is refused this document so.
func (i *insisted) first(r read) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, again := i.reads[r]; again {
		return false
	}
	if i.reads == nil || len(i.reads) >= maxInsisted {
		i.reads = map[read]struct{}{}
	}
	i.reads[r] = struct{}{}
	return true
}
