package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

// panicWarnings describes the panics that were contained, by server.
func (d *Daemon) panicWarnings() (warnings []string) {
	counts := d.panics.Counts()
	for _, server := range slices.Sorted(maps.Keys(counts)) {
		c := counts[server]
		warnings = append(warnings, fmt.Sprintf("%s: panics contained: %d, the last at %s (%s): a bug of bootlab; please report it with the stack in the log",
			server, c.N, c.Place, c.Last.Format(time.DateTime)))
	}
	return warnings
}

// contained runs a task. A server that panics outside of its handlers ends with an error, and the others go on; any other task is started
// again.
func (t *task) contained(ctx context.Context, contain *panics.Server) (err error) {
	if t.server {
		return contain.Run(func() error { return t.run(ctx) })
	}
	contain.Loop(ctx, func() { err = t.run(ctx) })
	return err
}
