package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/store"
)

// readRecords calls decode for each record below a prefix of the store, with its key without the prefix. Those that decode returns an
// error for count as lost.
func readRecords(ctx context.Context, s store.Store, prefix string, decode func(key string, value []byte) error) error {
	var bad store.Undecodable
	err := s.Scan(ctx, prefix, func(key string, value []byte) error {
		if err := decode(strings.TrimPrefix(key, prefix), value); err != nil {
			bad.Add(key, fmt.Errorf("read %s: %w", key, err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return bad.MarkLost(s)
}
