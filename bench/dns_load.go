package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/internal/host/socket/datagram"
)

// dnsLoadCommand is the argument that makes this program the load, in a process and on a CPU of its own, for one order.
const dnsLoadCommand = "dns-load"

// A dnsOrder is a command to the load: a line of JSON.
type dnsOrder struct {
	Names string        // mix, forwarded, large, last or added
	For   time.Duration // how long
	Rate  int           // queries per second; 0: as many as are answered
	Once  bool          // each question once, and every answer must be right
	Await bool          // the first question, until its answer is right
}

// A dnsResult is what it answers.
type dnsResult struct {
	Answered, Lost int
	Took           time.Duration
	Median, P99    time.Duration // at a rate
}

// A dnsQuery is one query, packed, and what its reply must be.
type dnsQuery struct {
	packet  []byte
	code    byte // RCODE
	answers bool // there are some
}

const (
	dnsSockets  = 4
	dnsInFlight = 32 // for each socket
	dnsTimeout  = 500 * time.Millisecond
)

// runDNSLoad carries out one order.
func runDNSLoad(_ context.Context, in io.Reader, out io.Writer) error {
	var o dnsOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	questions := dnsQueries(o.Names)
	var got dnsResult
	var err error
	switch {
	case o.Await:
		got, err = await(questions[0])
	case o.Once:
		got, err = askOnce(questions)
	case o.Rate > 0:
		got, err = askSteadily(questions, o.Rate, o.For)
	default:
		got, err = askMany(questions, o.For)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(got)
}

// dnsQueries returns what is asked, in an order that mixes the kinds.
func dnsQueries(names string) (all []dnsQuery) {
	const a, ptr, aaaa, srv = 1, 12, 28, 33
	add := func(name string, qtype uint16, code byte, answers bool) {
		all = append(all, dnsQuery{packDNS(name, qtype), code, answers})
	}
	switch names {
	case "mix":
		for i := range 20 * dnsHosts {
			host := i * 7 % dnsHosts
			switch i % 20 {
			case 0, 1, 2:
				add(reverseName(host), ptr, 0, true)
			case 3, 4:
				add(fmt.Sprintf("h%d.%s", host, labZone), aaaa, 0, false)
			case 5, 6:
				add(fmt.Sprintf("x%d.apps.%s", i, appsZone), a, 0, true)
			case 7:
				add("_etcd-server-ssl._tcp."+appsZone, srv, 0, true)
			case 8, 9:
				add(fmt.Sprintf("missing%d.%s", i, labZone), a, 3, false)
			default:
				add(fmt.Sprintf("h%d.%s", host, labZone), a, 0, true)
			}
		}
	case "forwarded":
		for i := range 1000 {
			add(fmt.Sprintf("f%d.forwarded.example", i), a, 0, true)
		}
	case "large":
		for i := range 20_000 {
			add(fmt.Sprintf("n%d.%s", i*7919%largeNames, bigZone), a, 0, true)
		}
	case "last":
		add(fmt.Sprintf("n%d.%s", largeNames-1, bigZone), a, 0, true)
	case "added":
		add(fmt.Sprintf("n%d.%s", largeNames, bigZone), a, 0, true)
	}
	return all
}

// packDNS makes a query with EDNS, as resolvers send it.
func packDNS(name string, qtype uint16) []byte {
	b := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = binary.BigEndian.AppendUint16(append(b, 0), qtype)
	return append(b, 0, 1, 0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0)
}

// right reports whether a reply is the one that the question must have.
func (q *dnsQuery) right(reply []byte) bool {
	return len(reply) >= 12 && reply[2]&0x80 != 0 && reply[3]&0xf == q.code && (reply[6]|reply[7] != 0) == q.answers
}

var dnsServerAddr = netip.MustParseAddrPort(dnsAddr + ":53")

func dialDNS() (*net.UDPConn, error) {
	return net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(dnsServerAddr))
}

// askOnce asks each question once, one after the other.
func askOnce(questions []dnsQuery) (got dnsResult, err error) {
	c, err := dialDNS()
	if err != nil {
		return got, err
	}
	defer c.Close()
	b := make([]byte, 2048)
	for i := range questions {
		q := &questions[i]
		binary.BigEndian.PutUint16(q.packet, uint16(i))
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.Write(q.packet); err != nil {
			return got, err
		}
		n, err := c.Read(b)
		if err != nil {
			return got, err
		}
		if binary.BigEndian.Uint16(b) != uint16(i) || !q.right(b[:n]) {
			return got, fmt.Errorf("question %d: reply %x", i, b[:n])
		}
		got.Answered++
	}
	return got, nil
}

// await asks a question every millisecond until the answer is right.
func await(q dnsQuery) (got dnsResult, err error) {
	start := time.Now()
	for time.Since(start) < time.Minute {
		if _, err = askOnce([]dnsQuery{q}); err == nil {
			return dnsResult{Answered: 1, Took: time.Since(start)}, nil
		}
		time.Sleep(time.Millisecond)
	}
	return got, err
}

// A dnsSocket keeps so many queries in flight. The ID of a query is its slot.
type dnsSocket struct {
	conn      *net.UDPConn
	raw       syscall.RawConn
	in        *datagram.Receiver
	out       *datagram.Sender
	questions []dnsQuery
	next      int
	packets   [dnsInFlight][512]byte
	asked     [dnsInFlight]int // question
	seen      dnsResult
	wrong     error
}

// askMany keeps 128 queries in flight on four sockets, one after the other as their replies come.
func askMany(questions []dnsQuery, d time.Duration) (got dnsResult, err error) {
	results := make(chan *dnsSocket)
	start := time.Now()
	for i := range dnsSockets {
		s := &dnsSocket{in: datagram.NewReceiver(dnsInFlight, 2048), out: datagram.NewSender(dnsInFlight), questions: questions, next: i * len(questions) / dnsSockets}
		if s.conn, err = dialDNS(); err != nil {
			return got, err
		}
		defer s.conn.Close()
		if s.raw, err = s.conn.SyscallConn(); err != nil {
			return got, err
		}
		go func() { s.run(start.Add(d)); results <- s }()
	}
	for range dnsSockets {
		s := <-results
		got.Answered += s.seen.Answered
		got.Lost += s.seen.Lost
		err = errors.Join(err, s.wrong)
	}
	got.Took = time.Since(start)
	return got, err
}

func (s *dnsSocket) run(end time.Time) {
	for i := range dnsInFlight {
		s.ask(i)
	}
	_ = s.conn.SetReadDeadline(end)
	for open := dnsInFlight; open > 0; {
		s.out.Send(s.raw, nil)
		n, err := s.in.Receive(s.raw)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		for i := range n {
			s.reply(s.in.Message(i).Data)
		}
	}
}

// ask queues the next question of a slot.
func (s *dnsSocket) ask(slot int) {
	s.next = (s.next + 1) % len(s.questions)
	s.asked[slot] = s.next
	p := s.packets[slot][:copy(s.packets[slot][:], s.questions[s.next].packet)]
	binary.BigEndian.PutUint16(p, uint16(slot))
	s.out.Add(p, dnsServerAddr, netip.Addr{})
}

func (s *dnsSocket) reply(b []byte) {
	if len(b) < 12 || binary.BigEndian.Uint16(b) >= dnsInFlight {
		s.wrong = fmt.Errorf("reply %x to nothing", b)
		return
	}
	slot := int(binary.BigEndian.Uint16(b))
	if q := &s.questions[s.asked[slot]]; !q.right(b) {
		s.wrong = fmt.Errorf("query %x, reply %x", q.packet, b)
	}
	s.seen.Answered++
	s.ask(slot)
}

// askSteadily asks at a rate, however long the replies take.
func askSteadily(questions []dnsQuery, rate int, d time.Duration) (got dnsResult, err error) {
	c, err := dialDNS()
	if err != nil {
		return got, err
	}
	defer c.Close()
	total := int(d.Seconds() * float64(rate))
	sent, took := make([]time.Time, total), make([]time.Duration, total)
	received := make(chan error)
	go func() {
		b := make([]byte, 2048)
		for got.Answered < total {
			n, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				continue // refused while it starts
			}
			now := time.Now()
			id := int(binary.BigEndian.Uint16(b))
			if id >= total || took[id] != 0 || !questions[id%len(questions)].right(b[:n]) {
				received <- fmt.Errorf("reply %x", b[:n])
				return
			}
			took[id] = now.Sub(sent[id])
			got.Answered++
		}
		received <- nil
	}()
	start := time.Now()
	for i := range total {
		if wait := time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))); wait > 0 {
			time.Sleep(wait)
		}
		p := questions[i%len(questions)].packet
		binary.BigEndian.PutUint16(p, uint16(i))
		sent[i] = time.Now()
		if _, err := c.Write(p); err != nil {
			return got, err
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(dnsTimeout))
	err = <-received
	got.Took, got.Lost = time.Since(start), total-got.Answered
	took = slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	if slices.Sort(took); len(took) > 0 {
		got.Median, got.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	return got, err
}

// runDNSUpstream answers every question of type A with the same address, for an hour's caching.
func runDNSUpstream(ctx context.Context) error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(dnsLoadAddr+":53")))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	b := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return err
		}
		end := 12
		for end < n && b[end] != 0 {
			end += 1 + int(b[end])
		}
		if end+5 > n {
			continue
		}
		reply := append(slices.Clone(b[:end+5]), 0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, 1)
		copy(reply[2:12], []byte{0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0})
		if _, err := conn.WriteToUDPAddrPort(reply, from); err != nil {
			return err
		}
	}
}
