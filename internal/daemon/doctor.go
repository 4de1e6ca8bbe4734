package daemon

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/health"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/daemon/privileges"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/daemon/vips"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// Namespace names the network namespace of this process, as /proc does; empty: not known.
func Namespace() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// Examined returns what the checks of package doctor look at: a lab, what a start of the daemon would find, where its servers listen, and
// what Check warns of. The addresses of clusters and balancers count as there: the daemon adds them, or check addresses reports them.
func Examined(l *lab.Lab, labPath string, warnings lab.Problems) *doctor.Machine {
	m := &doctor.Machine{Lab: l, Warnings: warnings, Addresses: vips.Wanted(l), DHCP: dhcpd.Compile(l).Interfaces()}
	m.Start, m.Unread = privileges.Rehearse(l, labPath)
	token := filepath.Join(l.Appliance.State, statefile.Token)
	_, tokenErr := regular.Within(l.Appliance.State, regular.Wait, func() (struct{}, error) { return struct{}{}, httpd.CheckToken(token) })
	if tokenErr != nil && !errors.Is(tokenErr, regular.ErrNoAnswer) { // a folder that does not answer is found by check state
		m.Start = append(m.Start, doctor.Failed(token, tokenErr))
	}
	m.Loss = func() []doctor.Finding {
		found, err := regular.Within(l.Appliance.State, regular.Wait, func() ([]doctor.Finding, error) {
			return append(stateFile(l.Appliance), privileges.ExpectLoss(l.Appliance, labPath)...), nil
		})
		if err != nil {
			return []doctor.Finding{doctor.Failed(l.Appliance.State, err)}
		}
		return found
	}
	own, err := links.Addrs()
	add := func(e ports.Endpoint, last uint16, socket string) {
		addr := e.Addr.Addr()
		here := err != nil || own.Serve(addr)
		isVIP := slices.ContainsFunc(l.VIPs(), func(s lab.VIP) bool { return s.Addr == addr })
		open := func(ctx context.Context, at netip.AddrPort) (io.Closer, error) {
			e.Addr = at
			return e.Open(ctx)
		}
		if !slices.ContainsFunc(m.Endpoints, func(o doctor.Endpoint) bool { return o.Network == e.Network && o.Addr == e.Addr }) {
			m.Endpoints = append(m.Endpoints, doctor.Endpoint{Server: e.Server, Socket: socket, Key: e.Key, Network: e.Network, Addr: e.Addr, Last: last, Here: here || isVIP, Open: open})
		}
	}
	for _, e := range endpoints(l) {
		add(e, 0, e.Addr.String())
	}
	for _, b := range l.Balancers {
		network := "tcp"
		if b.Mode == lab.ModeUDP {
			network = "udp"
		}
		for _, bind := range b.Listen {
			add(ports.Endpoint{Server: health.LB, Key: b.ListenKey(bind.Addr), Network: network, Addr: netip.AddrPortFrom(bind.Addr, bind.First)}, bind.Last, health.Socket(b, bind))
		}
	}
	return m
}

// stateFile says why a start would refuse the state file, and what of it would be lost.
func stateFile(a lab.Appliance) []doctor.Finding {
	path := statefile.Path(a)
	s, err := statefile.Hold(a)
	if err != nil {
		return []doctor.Finding{doctor.Failed(path, err)}
	}
	defer func() { _ = s.Close() }()
	if s.Damage == "" {
		return nil
	}
	return []doctor.Finding{{Subject: path, Level: doctor.Fail, Text: "is damaged: " + s.Damage,
		Fix: "bootlab restore FILE puts a backup in its place; else a start keeps a copy of the file and goes on with what can be read (docs/operations.md#a-damaged-state-file)"}}
}
