package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/consolelog"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// consolesFolder has what serial consoles wrote, below appliance.state.
const consolesFolder = "consoles"

// openConsoles opens the log of serial consoles. Lines that matter become events.
func (d *Daemon) openConsoles() (*consolelog.Log, error) {
	kinds := map[consolelog.Meaning]event.Kind{
		consolelog.Panic: event.ConsolePanic, consolelog.Emergency: event.ConsoleEmergency, consolelog.NoBootDevice: event.ConsoleNoBootDevice,
	}
	return consolelog.Open(consolelog.Config{Dir: d.inState(consolesFolder)}, consolelog.Deps{
		Log: d.serverLog, Now: time.Now, Registerer: d.registry, Found: func(f consolelog.Finding) {
			d.bus.Record(event.Event{Kind: kinds[f.Meaning], Host: f.Host, Detail: f.Line})
		},
	})
}

// Console implements httpd.Backend.
func (c *adminBackend) Console(ctx context.Context, host string) (<-chan api.ConsoleOutput, error) {
	from, err := c.servers.virt.Console(ctx, host)
	if err != nil {
		return nil, c.vmError(err, http.StatusConflict, host)
	}
	to := make(chan api.ConsoleOutput)
	go func() {
		defer close(to)
		for out := range from {
			select {
			case to <- api.ConsoleOutput(out):
			case <-ctx.Done():
				return
			}
		}
	}()
	return to, nil
}

// TakeConsole implements httpd.Backend.
func (c *adminBackend) TakeConsole(_ context.Context, host string) error {
	if err := c.servers.virt.TakeConsole(host); err != nil {
		return c.vmError(err, http.StatusConflict, host)
	}
	return nil
}

// TypeConsole implements httpd.Backend.
func (c *adminBackend) TypeConsole(ctx context.Context, host string, input []byte) error {
	if err := c.servers.virt.Type(ctx, host, input); err != nil {
		return c.vmError(err, http.StatusConflict, host)
	}
	return nil
}

// ConsoleBoots implements httpd.Backend.
func (c *adminBackend) ConsoleBoots(_ context.Context, host string) []api.ConsoleBoot {
	var boots []api.ConsoleBoot
	for _, b := range c.servers.consoles.Boots(host) {
		boots = append(boots, api.ConsoleBoot(b))
	}
	return boots
}

// ConsoleLog implements httpd.Backend.
func (c *adminBackend) ConsoleLog(ctx context.Context, host string, started time.Time) ([]byte, error) {
	c.servers.consoles.Flush(ctx)
	text, err := c.servers.consoles.Read(host, started)
	if err != nil {
		return nil, &api.Error{Status: http.StatusNotFound, Message: err.Error(), Hint: "bootlab vm log " + host + " --list shows which are kept"}
	}
	return text, nil
}
