package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/host/pause"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// watchClock records when the wall clock was set.
func (d *Daemon) watchClock(ctx context.Context) error {
	failed, warned := false, time.Time{}
	for {
		j, err := d.clock.Check(ctx, d.book.LastEnd)
		if j.By != 0 {
			d.bus.Record(event.Event{Kind: event.ClockJumped, Err: jumpText(d.clock, j)})
		}
		if err != nil && !failed && ctx.Err() == nil && time.Since(warned) >= diskhealth.ReportEvery {
			warned = time.Now()
			d.log.Warn("the clock of leases is not stored: a jump of the system clock over a restart will not be noticed", "err", err)
		}
		failed = err != nil
		if pause.For(ctx, time.Second) != nil {
			return nil
		}
	}
}

// clockNote says that the wall clock jumped, while there may be leases from before; else it is empty.
func clockNote(c *leases.Clock) string {
	j := c.Last()
	if j.By == 0 || !c.Now().Before(j.Until) {
		return ""
	}
	return jumpText(c, j)
}

// jumpText describes a jump for people.
func jumpText(c *leases.Clock, j leases.Jump) string {
	way, when := "forward", "at "+c.Wall(j.At).Format(time.DateTime)
	if j.By < 0 {
		way = "back"
	}
	if j.Restart {
		when = "before the start at " + c.Wall(j.At).Format(time.DateTime)
		if j.By > 0 {
			when += ", or this machine was off for so long"
		}
	}
	text := fmt.Sprintf("the system clock was set %s by %s %s; leases from before keep the time that they were given for", way, j.By.Abs(), when)
	if j.Until.After(j.At) {
		text += ", until " + c.Wall(j.Until).Format(time.DateTime) + " at the latest"
	}
	return text
}
