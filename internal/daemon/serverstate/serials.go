package serverstate

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// SerialPrefix is below which the serials of zones are in the store, by origin.
const SerialPrefix = "serial/"

// A zoneSerial is the serial of a zone and the content that it stands for.
type zoneSerial struct {
	Serial uint32 `json:"serial"`
	Hash   uint64 `json:"hash"`
}

// Serials gives zones their serials, over restarts. Only one reload at a time uses it.
type Serials struct {
	saver *records.Saver
	log   *slog.Logger
	known map[string]zoneSerial
}

// OpenSerials reads the serials from the store.
func OpenSerials(ctx context.Context, s store.Store, save *records.Saver, log *slog.Logger) (*Serials, error) {
	known := map[string]zoneSerial{}
	err := records.Read(ctx, s, SerialPrefix, func(origin string, z zoneSerial) error {
		known[origin] = z
		return nil
	})
	return &Serials{saver: save, log: log, known: known}, err
}

// Assign returns a table whose serials have moved where a zone's content has, and stores them. If the store fails, they hold
// until the next start; if the disk hangs, they are stored once it answers.
func (s *Serials) Assign(t *dnsd.Table) *dnsd.Table {
	now := uint32(time.Now().Unix()) // RFC 1982 arithmetic: it may pass its end in 2106
	all, changed := map[string]uint32{}, []store.Op(nil)
	for _, c := range t.Contents() {
		before, ok := s.known[c.Origin]
		z := zoneSerial{Hash: c.Hash}
		z.Serial = dnsd.NextSerial(before.Serial, c.LabSerial, ok && before.Hash != c.Hash, now)
		all[c.Origin] = z.Serial
		if z == before {
			continue
		}
		s.known[c.Origin] = z
		if value, err := json.Marshal(z); err == nil {
			changed = append(changed, store.Op{Key: SerialPrefix + c.Origin, Value: value})
		}
	}
	if len(changed) > 0 {
		if err := s.saver.Save(changed...); err != nil {
			s.log.Warn("serials of DNS zones are not stored: secondaries may miss a change after the next restart", "err", err)
		}
	}
	return t.WithSerials(all)
}
