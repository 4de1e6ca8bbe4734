package vmadmin

import (
	"context"
	"net/http"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

// Console implements httpd.Backend.
func (m *Machines) Console(ctx context.Context, host string) (<-chan api.ConsoleOutput, error) {
	from, err := m.deps.Virt.Console(ctx, host)
	if err != nil {
		return nil, m.vmError(err, http.StatusConflict, host)
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
func (m *Machines) TakeConsole(_ context.Context, host string) error {
	if err := m.deps.Virt.TakeConsole(host); err != nil {
		return m.vmError(err, http.StatusConflict, host)
	}
	return nil
}

// TypeConsole implements httpd.Backend.
func (m *Machines) TypeConsole(ctx context.Context, host string, input []byte) error {
	if err := m.deps.Virt.Type(ctx, host, input); err != nil {
		return m.vmError(err, http.StatusConflict, host)
	}
	return nil
}

// ConsoleBoots implements httpd.Backend.
func (m *Machines) ConsoleBoots(_ context.Context, host string) []api.ConsoleBoot {
	var boots []api.ConsoleBoot
	for _, b := range m.deps.Consoles.Boots(host) {
		boots = append(boots, api.ConsoleBoot(b))
	}
	return boots
}

// ConsoleLog implements httpd.Backend.
func (m *Machines) ConsoleLog(ctx context.Context, host string, started time.Time) ([]byte, error) {
	m.deps.Consoles.Flush(ctx)
	text, err := m.deps.Consoles.Read(host, started)
	if err != nil {
		return nil, &api.Error{Status: http.StatusNotFound, Message: err.Error(), Hint: "bootlab vm log " + host + " --list shows which are kept"}
	}
	return text, nil
}
