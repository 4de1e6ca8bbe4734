// Package dnsprobe asks whether a DNS server answers.
//
//	err := dnsprobe.Ask(ctx, server, "lab.example", 5*time.Second)
package dnsprobe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Ask asks a server for the SOA record of a name, up to three times until timeout ends. Without a name it is the root's, and any
// answer will do: a server that refuses it is alive.
func Ask(ctx context.Context, target netip.AddrPort, name string, timeout time.Duration) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", target.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	query, id, err := dnsQuery(name)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer := make([]byte, 1232)
	for ctx.Err() == nil {
		if _, err := conn.Write(query); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(timeout / 3))
		for {
			n, err := conn.Read(answer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if answered, err := dnsAnswer(answer[:n], id, name); answered {
				return err
			}
		}
	}
	return ctx.Err()
}

// dnsQuery returns a query for the SOA record of a name.
func dnsQuery(name string) (query []byte, id uint16, err error) {
	owner, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, 0, fmt.Errorf("name %q of the check: %w", name, err)
	}
	id = uint16(rand.Uint32())
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: name != ""},
		Questions: []dnsmessage.Question{{Name: owner, Type: dnsmessage.TypeSOA, Class: dnsmessage.ClassINET}},
	}
	query, err = m.Pack()
	return query, id, err
}

// dnsAnswer reports whether b is the answer to the query of that id, and what is wrong with it.
func dnsAnswer(b []byte, id uint16, name string) (answered bool, err error) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil || h.ID != id || !h.Response {
		return false, nil
	}
	if name != "" && h.RCode != dnsmessage.RCodeSuccess {
		return true, fmt.Errorf("SOA of %s: the server answers %s", name, strings.TrimPrefix(h.RCode.String(), "RCode"))
	}
	return true, nil
}
