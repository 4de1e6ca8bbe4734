package records

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/store"
)

// Read calls take for each record below a prefix of the store, JSON, with its key without the prefix. Those that cannot be decoded,
// and those that take returns an error for, count as lost.
func Read[T any](ctx context.Context, s store.Store, prefix string, take func(key string, record T) error) error {
	var bad store.Undecodable
	err := s.Scan(ctx, prefix, func(key string, value []byte) error {
		var record T
		err := json.Unmarshal(value, &record)
		if err == nil {
			err = take(strings.TrimPrefix(key, prefix), record)
		}
		if err != nil {
			bad.Add(key, fmt.Errorf("read %s: %w", key, err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return bad.MarkLost(s)
}
