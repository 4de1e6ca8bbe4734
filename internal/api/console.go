package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A ConsoleOutput is what happens on the serial console of a virtual machine: it writes, or the state of the console changes.
type ConsoleOutput struct {
	Output []byte `json:"output,omitempty"` // base64 in JSON
	State  string `json:"state,omitempty"`  // for people: connected, or why it is not
}

// States of a console. Others say why it is not open.
const (
	ConsoleConnected  = "connected"
	ConsoleConnecting = "connecting"
)

// A ConsoleInput is what is typed on a console.
type ConsoleInput struct {
	Input []byte `json:"input"` // base64 in JSON
}

// A ConsoleBoot is what is kept of a console's output in one boot.
type ConsoleBoot struct {
	Started time.Time `json:"started"` // of the machine, as far as it was seen; names the boot
	Last    time.Time `json:"last"`    // of its last output
	Bytes   int64     `json:"bytes"`   // kept
	Dropped int64     `json:"dropped,omitempty"`
}

// Console calls fn for what happens on the console of a host's virtual machine, until ctx ends, the daemon stops (nil) or fn returns an
// error, which is returned.
func (c *Client) Console(ctx context.Context, host string, fn func(ConsoleOutput) error) error {
	return followLines(ctx, c, "vms/"+url.PathEscape(host)+"/console", nil, fn)
}

// TakeConsole takes the console of a host's virtual machine from another program that has it, such as virsh console.
func (c *Client) TakeConsole(ctx context.Context, host string) error {
	var done struct{}
	return c.callWith(ctx, http.MethodPost, "vms/"+url.PathEscape(host)+"/console/take", nil, nil, &done)
}

// TypeConsole types on the console of a host's virtual machine.
func (c *Client) TypeConsole(ctx context.Context, host string, input []byte) error {
	body, err := json.Marshal(ConsoleInput{Input: input})
	if err != nil {
		return err
	}
	var done struct{}
	return c.callWith(ctx, http.MethodPost, "vms/"+url.PathEscape(host)+"/console/input", nil, body, &done)
}

// ConsoleBoots returns the boots of a host's virtual machine whose console output is kept, the oldest first.
func (c *Client) ConsoleBoots(ctx context.Context, host string) (boots []ConsoleBoot, err error) {
	return boots, c.get(ctx, "vms/"+url.PathEscape(host)+"/log", &boots)
}

// ConsoleLog returns the output of the boot that started at a time, as the machine wrote it.
func (c *Client) ConsoleLog(ctx context.Context, host string, started time.Time) ([]byte, error) {
	resp, err := c.open(ctx, "vms/"+url.PathEscape(host)+"/log", url.Values{"boot": {started.Format(time.RFC3339Nano)}, "raw": {"1"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
