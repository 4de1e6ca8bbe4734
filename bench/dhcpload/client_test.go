package dhcpload

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var pool = netip.MustParseAddr("10.65.0.0")

// serve answers a client on the loopback with Fake, or with what answer makes of Fake's answers.
func serve(t *testing.T, size int, spoil func(n int, reply []byte)) *Client {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	self := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	done := make(chan error, 1)
	go func() {
		if spoil == nil {
			done <- Fake(conn, self.Addr(), pool)
			return
		}
		spoiled(conn, self.Addr(), spoil)
		done <- nil
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	source := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0)
	c, err := New(Config{
		Server: self, Sources: []netip.AddrPort{source, source, source}, First: pool, Size: size, InFlight: 9,
		Timeout: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spoiled is a server whose n-th answer is changed; one that is emptied is not sent.
func spoiled(conn *net.UDPConn, self netip.Addr, spoil func(n int, reply []byte)) {
	in, out := make([]byte, longest), make([]byte, shortest)
	for n := 0; ; n++ {
		size, from, err := conn.ReadFromUDPAddrPort(in)
		if err != nil {
			return
		}
		if !fakeAnswer(in[:size], out, number(self), number(pool)) {
			continue
		}
		spoil(n, out)
		if out[0] != 0 {
			_, _ = conn.WriteToUDPAddrPort(out, from)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	c := serve(t, 1000, nil)
	ctx := context.Background()
	if !c.Answers(ctx) {
		t.Fatal("no offer")
	}
	r, err := c.DORA(ctx, Machines{First: 10, Count: 500})
	if err != nil {
		t.Fatal(err)
	}
	if r.Done != 500 || r.Failed != 0 || r.Wrong != nil || r.P50 <= 0 || r.P99 < r.P50 || r.OfferP50 <= 0 {
		t.Errorf("DORA: %+v", r)
	}
	leases := c.Leases()
	if len(leases) != 500 || leases[MAC(509)] != netip.MustParseAddr("10.65.1.253") {
		t.Errorf("%d leases, of the last machine %s", len(leases), leases[MAC(509)])
	}
	if r, err = c.Renew(ctx, Machines{First: 10, Count: 100}, 1000); err != nil || r.Done != 1000 || r.Failed != 0 {
		t.Errorf("renew: %+v, %v", r, err)
	}
	if r, err = c.Renew(ctx, Machines{First: 505, Count: 100}, 10); err != nil || r.Done != 10 {
		t.Errorf("renew five of a hundred: %+v, %v", r, err)
	}
	if _, err = c.Renew(ctx, Machines{First: 510, Count: 100}, 1000); err == nil {
		t.Error("renewed what is not leased")
	}
}

// Every kind of wrong answer must be seen, else a fast wrong server would win.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		size  int
		spoil func(n int, b []byte)
		want  map[string]int
		done  int
	}{
		{"outside the pool", 50, func(int, []byte) {}, map[string]int{"address 10.65.0.50 outside the pool": 1}, 50},
		{"another transaction", 1000, func(n int, b []byte) {
			if n == 7 {
				b[atXID] ^= 0x80
			}
		}, nil, 51},
		{"another machine", 1000, func(n int, b []byte) {
			if n == 7 {
				b[atChaddr+5] ^= 0x80
			}
		}, map[string]int{"another machine's": 1}, 50},
		{"refused", 1000, func(n int, b []byte) {
			if b[atOptions+2] == byte(ack) && b[atChaddr+5] == 3 {
				b[atOptions+2] = 6
			}
		}, map[string]int{"message type 6 instead of 5": 1}, 50},
		{"two machines, one address", 1000, func(n int, b []byte) {
			if b[atChaddr+5] == 50 {
				b[atYiaddr+3] = 0
			}
		}, map[string]int{"address 10.65.0.0 given to two machines": 1}, 50},
		{"other than offered", 1000, func(n int, b []byte) {
			if b[atOptions+2] == byte(ack) && b[atChaddr+5] == 3 {
				b[atYiaddr+3] = 200
			}
		}, map[string]int{"acknowledged is not what was offered or had": 1}, 50},
		{"lost once", 1000, func(n int, b []byte) {
			if n == 7 {
				b[0] = 0
			}
		}, nil, 51},
		{"never answered", 1000, func(n int, b []byte) {
			if b[atChaddr+5] == 3 {
				b[0] = 0
			}
		}, nil, 50},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := serve(t, tt.size, tt.spoil).DORA(context.Background(), Machines{Count: 51})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, r.Wrong); d != "" {
				t.Errorf("wrong answers (-want +got):\n%s", d)
			}
			if r.Done != tt.done || r.Failed != 51-tt.done {
				t.Errorf("done %d, failed %d, want %d and %d", r.Done, r.Failed, tt.done, 51-tt.done)
			}
		})
	}
}

func TestEndsWithContext(t *testing.T) {
	t.Parallel()
	c := serve(t, 1000, func(_ int, b []byte) { b[0] = 0 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := c.DORA(ctx, Machines{Count: 1000})
	if err != nil || r.Done != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzParse(f *testing.F) {
	b := make([]byte, shortest)
	m := message{kind: offer, xid: 7, machine: 9, giaddr: 1, yiaddr: 3, server: 4, lease: 5}
	f.Add(append([]byte(nil), b[:m.put(b)]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := parse(b)
		if !ok {
			return
		}
		out := make([]byte, shortest)
		again, ok := parse(out[:got.put(out)])
		if d := cmp.Diff(got, again, cmp.AllowUnexported(message{})); !ok || d != "" {
			t.Errorf("parsed, put and parsed again (-want +got):\n%s", d)
		}
	})
}
