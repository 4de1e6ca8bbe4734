package dnsd

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/miekg/dns"
)

// The zone of generationTable: of its names one in generationStep changes with each generation.
const (
	generationNames = 3000
	generationStep  = 60
)

// generationAddr returns the address of a name in a generation: the number of the last one that changed it.
func generationAddr(name, generation int) string {
	changed := generation - ((generation-name)%generationStep+generationStep)%generationStep
	return fmt.Sprintf("10.0.%d.%d", changed>>8, changed&0xff)
}

// generationTable is a zone whose serial is its generation, and whose records say which generation changed them.
func generationTable(t testing.TB, generation int) *Table {
	t.Helper()
	var text strings.Builder
	text.WriteString("@ NS h0\n")
	for i := range generationNames {
		fmt.Fprintf(&text, "h%d A %s\n", i, generationAddr(i, generation))
	}
	l := &lab.Lab{Zones: []*lab.Zone{{Origin: "z.test.", File: "/z"}}}
	l.DNS.Transfer = []lab.Access{{From: netip.MustParsePrefix("127.0.0.1/32")}}
	table, err := Compile(l, files(map[string]string{"/z": text.String()}))
	if err != nil {
		t.Fatal(err)
	}
	return table.WithSerials(map[string]uint32{"z.test.": uint32(generation)})
}

// A copyOfZone is what a secondary holds: the address of each name, and the serial.
type copyOfZone struct {
	serial uint32
	addrs  map[string]string
}

// take applies a transfer, whole or incremental (RFC 1995 section 4).
func (c *copyOfZone) take(rrs []dns.RR) error {
	if len(rrs) == 0 {
		return fmt.Errorf("the transfer is empty")
	}
	last := rrs[0].(*dns.SOA)
	if end, ok := rrs[len(rrs)-1].(*dns.SOA); !ok || end.Serial != last.Serial {
		return fmt.Errorf("begins with %v and ends with %v", last, rrs[len(rrs)-1])
	}
	incremental := len(rrs) > 2 && rrs[1].Header().Rrtype == dns.TypeSOA
	if len(rrs) > 1 && !incremental {
		c.addrs = map[string]string{}
	}
	adding := true
	for _, rr := range rrs[1:max(1, len(rrs)-1)] {
		switch rr := rr.(type) {
		case *dns.SOA:
			if adding = !adding; !adding && rr.Serial != c.serial {
				return fmt.Errorf("a difference from %d where %d is held", rr.Serial, c.serial)
			}
			c.serial = rr.Serial
		case *dns.A:
			name, addr := rr.Hdr.Name, rr.A.String()
			if old, held := c.addrs[name]; adding == held || !adding && old != addr {
				return fmt.Errorf("adding=%t %v where %q is held", adding, rr, old)
			}
			if delete(c.addrs, name); adding {
				c.addrs[name] = addr
			}
		}
	}
	c.serial = last.Serial
	return nil
}

// wrong returns how many names do not have their address of the generation of the copy's serial.
func (c *copyOfZone) wrong() (n int) {
	for i := range generationNames {
		if c.addrs[fmt.Sprintf("h%d.z.test.", i)] != generationAddr(i, int(c.serial)) {
			n++
		}
	}
	return n
}

// TestTransfersOfOneGeneration: while a zone changes, what a secondary holds after each transfer, whole or incremental, is
// one generation of it, and never an earlier one than before.
func TestTransfersOfOneGeneration(t *testing.T) {
	t.Parallel()
	const first, last = 1000, 1040
	var table atomic.Pointer[Table]
	table.Store(generationTable(t, first))
	s := newServer(t, table.Load(), nil)
	s.deps.Table = table.Load
	ap := serve(t, s, "127.0.0.1")
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			c := &copyOfZone{addrs: map[string]string{}}
			for c.serial != last && !t.Failed() {
				before := c.serial
				m := new(dns.Msg).SetAxfr("z.test.")
				if n > 0 && before > 0 {
					m = new(dns.Msg).SetIxfr("z.test.", before, "ns.test.", "h.test.")
				}
				rrs, err := transferSlowly(m, ap, time.Duration(n)*time.Millisecond)
				if err == nil {
					err = c.take(rrs)
				}
				if wrong := c.wrong(); err != nil || wrong > 0 || c.serial < before {
					t.Errorf("secondary %d after %d: generation %d with %d wrong names: %v", n, before, c.serial, wrong, err)
				}
			}
		})
	}
	for generation := first + 1; generation <= last; generation++ {
		table.Store(generationTable(t, generation))
	}
	wg.Wait()
}

// transferSlowly returns the records of a transfer, whose messages are read with pauses.
func transferSlowly(m *dns.Msg, ap netip.AddrPort, pause time.Duration) (rrs []dns.RR, err error) {
	conn, err := net.Dial("tcp", ap.String())
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	ch, err := (&dns.Transfer{Conn: &dns.Conn{Conn: conn}, ReadTimeout: time.Minute}).In(m, ap.String())
	if err != nil {
		return nil, err
	}
	for e := range ch {
		if e.Error != nil {
			return nil, e.Error
		}
		rrs = append(rrs, e.RR...)
		time.Sleep(pause)
	}
	return rrs, nil
}
