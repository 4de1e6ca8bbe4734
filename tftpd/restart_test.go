package tftpd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/tftpd"
)

// TestRequestDuringTransfer: a request for another file from the address and port of a transfer in progress replaces it if the client sent
// it, and not if another machine did. Where the sender is not known, it does if the client does not answer, or has been sent everything.
func TestRequestDuringTransfer(t *testing.T) {
	eachPort(t, func(t *testing.T, single bool) {
		const (
			unanswered = "no answer yet"
			answering  = "in progress"
			ending     = "the last block was sent"
			silent     = "silent"
		)
		for _, tt := range []struct {
			state  string
			sender neighbour.User
			want   string // why the request is dropped; empty: it is answered
		}{
			{unanswered, neighbour.Own, ""}, {unanswered, neighbour.Foreign, "forged"}, {unanswered, neighbour.None, ""}, {unanswered, neighbour.Elsewhere, ""},
			{answering, neighbour.Own, ""}, {answering, neighbour.Foreign, "forged"}, {answering, neighbour.None, "duplicate"}, {answering, neighbour.Elsewhere, "duplicate"},
			{ending, neighbour.Own, ""}, {ending, neighbour.Foreign, "forged"}, {ending, neighbour.Elsewhere, ""},
			{silent, neighbour.Own, ""}, {silent, neighbour.Foreign, "forged"}, {silent, neighbour.Elsewhere, ""},
		} {
			t.Run(fmt.Sprintf("%s, sent by %s", tt.state, tt.sender), func(t *testing.T) {
				t.Parallel()
				config := testConfig{single: single, sender: senders(tt.sender)}
				if tt.state == silent {
					config.Config = tftpd.Config{Timeout: 50 * time.Millisecond, Retries: 10_000}
				}
				s := newTestServer(t, config)
				c := newClient(t, s.addr)
				c.send(request("images/whole", "octet")) // four blocks, and an empty one
				c.data(1)
				acked := map[string]int{answering: 1, ending: 4, silent: 1}[tt.state]
				for block := 1; block <= acked; block++ {
					c.ack(block)
					c.dataAtLast(block + 1)
				}
				if tt.state == silent {
					time.Sleep(2 * config.Timeout)
				}
				if _, err := c.conn.WriteToUDPAddrPort(request("images/one", "octet"), s.addr); err != nil {
					t.Fatal(err)
				}
				if tt.want == "" {
					if e := s.events.next(t); e.Detail != "images/whole" || (e.Kind == event.TFTPServed) != (tt.state == ending) {
						t.Errorf("event %+v, want the end of the first transfer", e)
					}
					return
				}
				netns.WaitFor(t, "the request to be dropped", func() bool {
					return testutil.ToFloat64(counter(t, s, tftpd.MetricDropped, tt.want)) == 1
				})
				for block := acked + 1; block <= 5; block++ {
					c.ack(block)
					if block < 5 {
						c.dataAtLast(block + 1)
					}
				}
				if e := s.events.next(t); e.Detail != "images/whole" || e.Kind != event.TFTPServed {
					t.Errorf("event %+v, want the whole file", e)
				}
			})
		}
	})
}
