package daemon

import (
	"context"
	"io"
	"time"

	"github.com/bootlab/bootlab/internal/store/backup"
)

// Backup implements httpd.Backend.
func (c *adminBackend) Backup(ctx context.Context, w io.Writer) error {
	start := time.Now()
	s, err := backup.Write(ctx, w, c.store, backup.Header{Lab: c.current.Load().Lab.Name, Version: c.cfg.Version, Created: start.UTC()})
	if err == nil {
		c.log.Info("state was backed up", "entries", s.Entries, "dur", time.Since(start))
	}
	return err
}
