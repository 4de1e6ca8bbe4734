package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// Resolve implements httpd.Backend.
func (b *adminBackend) Resolve(ctx context.Context, q api.DNSQuestion) (api.DNSAnswer, error) {
	l := b.current.Load().Lab
	from, err := b.clientAddr(l, q.As)
	if err != nil {
		return api.DNSAnswer{}, err
	}
	e, err := b.servers.dns.Explain(ctx, dnsd.Question{Name: q.Name, Type: q.Type, From: from, DO: q.DO})
	if err != nil {
		return api.DNSAnswer{}, questionError(err)
	}
	a := api.DNSAnswer{Question: e.Question, Client: from, Code: e.Code, Flags: e.Flags, Records: e.Records, Steps: []api.DNSStep{}}
	for _, s := range e.Steps {
		a.Steps = append(a.Steps, api.DNSStep(s))
	}
	if h := l.Find(q.Name); h != nil && (a.Code == "REFUSED" || a.Code == "NXDOMAIN") && strings.EqualFold(strings.TrimSuffix(q.Name, "."), h.Name) && h.FQDN != "" && len(a.Steps) > 0 {
		a.Steps[len(a.Steps)-1].Text += ": did you mean " + h.FQDN + "?"
	}
	return a, nil
}

func questionError(err error) error {
	if errors.Is(err, dnsd.ErrQuestion) {
		return &api.Error{Status: http.StatusBadRequest, Message: err.Error(), Hint: "want a name and a type, as in www.example.org AAAA"}
	}
	return err
}

// clientAddr returns the address of a client: itself, or that of a host; "" is the appliance.
func (b *adminBackend) clientAddr(l *lab.Lab, client string) (netip.Addr, error) {
	if client == "" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if addr, err := netip.ParseAddr(client); err == nil {
		return addr, nil
	}
	h := l.Find(client)
	if h == nil {
		return netip.Addr{}, api.NoHost(l, client)
	}
	if addr, ok := b.nicAddrs(l).OfHost(h); ok {
		return addr, nil
	}
	return netip.Addr{}, &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("host %s has no address now", h.Name), Hint: "give an address instead"}
}

// FlushDNS implements httpd.Backend.
func (b *adminBackend) FlushDNS(_ context.Context, name string) (api.DNSFlush, error) {
	removed, err := b.servers.dns.Flush(name)
	return api.DNSFlush{Removed: removed}, questionError(err)
}

// FollowDNS implements httpd.Backend. A host is followed through its addresses, as they change.
func (b *adminBackend) FollowDNS(ctx context.Context, client string) (<-chan api.DNSQuery, error) {
	var wants func(from netip.Addr) bool
	if addr, err := netip.ParseAddr(client); err == nil {
		wants = func(from netip.Addr) bool { return from.WithZone("") == addr.Unmap().WithZone("") }
	} else {
		l := b.current.Load().Lab
		h := l.Find(client)
		if h == nil {
			return nil, api.NoHost(l, client)
		}
		wants = func(from netip.Addr) bool { return b.isOf(from, h) }
	}
	out := make(chan api.DNSQuery)
	queries := b.servers.dns.FollowQueries(ctx, wants)
	go func() {
		defer close(out)
		for q := range queries {
			line := api.DNSQuery{At: q.At, Client: q.From, Question: q.Question, Code: q.Code, Source: q.Source, Records: q.Records}
			select {
			case out <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// isOf reports whether an address is a host's now, whatever it was when h was looked up.
func (b *adminBackend) isOf(from netip.Addr, h *lab.Host) bool {
	owner := b.nicAddrs(b.current.Load().Lab).HostOf(from)
	return owner != nil && owner.Name == h.Name
}
