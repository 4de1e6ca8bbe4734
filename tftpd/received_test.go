package tftpd_test

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/tftpd"
)

// TestReceived: a script begins a boot once its client has acknowledged it, and never by a request alone, which anybody can send in the
// machine's name: while no block was acknowledged, it is claimed. A request for a file is unverified then.
func TestReceived(t *testing.T) {
	eachPort(t, func(t *testing.T, single bool) {
		const script, long = "boot/52-54-00-00-02-01/boot.ipxe", "boot/52-54-00-00-02-da/boot.ipxe"
		const file = "boot/52-54-00-00-02-01/ipxe.efi"
		for _, tt := range []struct {
			name       string
			file       string
			options    []string
			client     func(*client)
			kind       event.Kind
			received   bool
			claimed    bool
			unverified bool
		}{
			{"whole", script, nil, func(c *client) { c.data(1); c.ack(1) }, event.TFTPServed, true, false, false},
			{"whole, and another machine's", "boot/52-54-00-00-02-db/boot.ipxe", nil, func(c *client) { c.data(1); c.ack(1) }, event.TFTPServed, false, true, true},
			{"nobody", script, nil, func(*client) {}, event.TFTPFailed, false, true, true},
			{"nobody, with options", script, []string{"blksize", "1024"}, func(*client) {}, event.TFTPFailed, false, true, true},
			{"the port is closed", script, nil, func(c *client) { c.data(1); c.conn.Close() }, event.TFTPFailed, false, true, true},
			{"the options only", script, []string{"blksize", "1024"}, func(c *client) { c.receive(maxWait); c.ack(0); c.data(1) }, event.TFTPFailed, false, true, true},
			{"a probe", script, []string{"tsize", "0"}, func(c *client) { c.receive(maxWait); c.send([]byte{0, 5, 0, 8, 0}) }, event.TFTPProbe, false, true, true},
			{"no last acknowledgement", long, nil, func(c *client) {
				for block := 1; block <= 2; block++ {
					c.dataAtLast(block)
					c.ack(block)
				}
				c.dataAtLast(3)
				c.conn.Close()
			}, event.TFTPServed, true, false, false},
			{"a file, whole", "images/one", nil, func(c *client) { c.data(1); c.ack(1) }, event.TFTPServed, false, false, false},
			{"a file of one block, and the port is closed", "images/one", nil, func(c *client) { c.data(1); c.conn.Close() }, event.TFTPServed, false, false, true},
			{"a file, and the port is closed", file, nil, func(c *client) { c.data(1); c.conn.Close() }, event.TFTPFailed, false, false, true},
			{"half of a file", file, nil, func(c *client) { c.data(1); c.ack(1); c.data(2); c.conn.Close() }, event.TFTPFailed, false, false, false},
			{"no such file", "nosuch", nil, func(*client) {}, event.TFTPRefused, false, false, true},
			{"half of it", long, nil, func(c *client) { c.data(1); c.ack(1); c.data(2); c.conn.Close() }, event.TFTPFailed, false, false, false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				s := newTestServer(t, testConfig{single: single, Config: tftpd.Config{Timeout: 400 * time.Millisecond, Retries: 2}})
				c := newClient(t, s.addr)
				c.send(request(tt.file, "octet", tt.options...))
				tt.client(c)
				e := s.events.next(t)
				if e.Kind != tt.kind {
					t.Errorf("event %v %s, want %v", e.Kind, e.Err, tt.kind)
				} else if e.Claimed != tt.claimed || tt.claimed && e.Reason != event.Unacknowledged {
					t.Errorf("claimed %v for reason %q, want %v", e.Claimed, e.Reason, tt.claimed)
				}
				if e.Unverified != tt.unverified {
					t.Errorf("unverified %v, want %v", e.Unverified, tt.unverified)
				}
				if got := len(s.received) == 1; got != tt.received {
					t.Errorf("received %v, want %v", got, tt.received)
				}
			})
		}
	})
}
