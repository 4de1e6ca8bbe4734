package dnsd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/miekg/dns"
)

// Limits of what dynamic updates may put into a zone. A set that is larger would not fit into one reply.
const (
	maxSetRecords   = 500 // of one RRset
	maxSetOctets    = 32 << 10
	maxNodeTypes    = 64       // types at one name
	maxZoneUpdates  = 10_000   // RRsets of one zone
	maxZoneOctets   = 4 << 20  // of their data
	maxUpdates      = 50_000   // RRsets of all zones
	maxUpdateOctets = 16 << 20 // of their data
	maxUpdateTTL    = 1<<31 - 1
)

// The response codes of RFC 2136 section 2.2.
const (
	yxRRset rcode = 7
	nxRRset rcode = 8
	notZone rcode = 10

	opcodeUpdate = 5 << 11 // in the header's second word
)

// Updates keep what dynamic updates put into zones. It is safe for concurrent use.
type Updates interface {
	// Update calls plan with the table in force, stores the RRsets that plan returns, and puts a table in force that has them; then
	// it returns. No other update comes between; where a reload does, the lab file takes precedence. An RRset without data is deleted. The
	// error is that of plan or of the store; then nothing has changed.
	Update(ctx context.Context, plan func(*Table) ([]RRSet, error)) error
}

// An updateError is why an update is refused.
type updateError struct {
	code rcode
	why  string
}

// Error implements error.
func (e *updateError) Error() string { return e.why }

func refuse(code rcode, format string, args ...any) error {
	return &updateError{code, fmt.Sprintf(format, args...)}
}

// acceptUpdate checks what is known before the records are looked at: the zone and who asks (RFC 2136 section 3.1). If the update may go
// on, it is pending.
func (s *Server) acceptUpdate(r *request, msg []byte) result {
	z, at := r.t.zoneOf(&r.q.name, 0)
	switch {
	case r.q.qtype != typeSOA:
		r.code = formErr
	case r.q.qclass != classIN || z == nil || at != 0:
		r.code = notAuth
	case s.deps.Updates == nil || !allows(z.source.Update, r.from, r.sig):
		r.code = refused
	case z.broken:
		r.code = servFail
	default:
		r.update = bytes.Clone(msg)
		return pending
	}
	s.metrics.updateRefused.Inc()
	s.log.Info("dynamic update refused: dns.zones.NAME.update does not list the key, or there is no such zone",
		keyAddr, r.from, keyZone, nameText(r.q.name.bytes()), "key", r.sig.by())
	return s.finish(r)
}

// applyUpdate does an update and finishes its reply. What it changed is stored and answered before that.
func (s *Server) applyUpdate(ctx context.Context, r *request) {
	origin, key := nameText(r.q.name.bytes()), r.sig.by()
	var m dns.Msg
	var changed []RRSet
	err := refuse(formErr, "the message cannot be read")
	if m.Unpack(r.update) == nil {
		err = s.deps.Updates.Update(ctx, func(t *Table) (sets []RRSet, err error) {
			changed, err = t.planUpdate(&m, r, s.deps.Now())
			return changed, err
		})
	}
	var why *updateError
	switch {
	case err == nil:
		s.metrics.updated.Inc()
		s.log.Info("dynamic update", keyZone, origin, keyAddr, r.from, "key", key, "rrsets", len(changed))
		s.changes.see(s.deps.Table)
	case errors.As(err, &why):
		r.code = why.code
		s.metrics.updateRefused.Inc()
		s.log.Info("dynamic update refused", keyZone, origin, keyAddr, r.from, "key", key, keyErr, err)
	default:
		r.code = servFail
		s.log.Error("dynamic update failed", keyZone, origin, keyAddr, r.from, "key", key, keyErr, err)
	}
	s.finish(r)
}
