package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/bootlab/bootlab/internal/host/portowner"
	"github.com/bootlab/bootlab/internal/lab"
)

// sockets are the ports of the appliance itself. Those of DHCP and the balancers follow the lab and are opened by their
// servers.
type sockets struct {
	tftp      []*net.UDPConn // none where appliance.tftp is off
	dnsUDP    []*net.UDPConn // none where appliance.dns is off
	dnsTCP    []*net.TCPListener
	http      net.Listener
	admin     net.Listener
	adminUnix net.Listener
}

// openSockets opens all ports, or none. The error of a taken port names who holds it.
func openSockets(ctx context.Context, a lab.Appliance) (*sockets, error) {
	s := &sockets{}
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	var err error
	add(s.openTFTP(ctx, a.TFTP))
	add(s.openDNS(ctx, a.DNS))
	s.http, err = listenTCP(ctx, a.HTTP)
	add(describe(err, "http", "tcp", a.HTTP))
	s.admin, err = listenTCP(ctx, a.Admin)
	add(describe(err, "admin", "tcp", a.Admin))
	s.adminUnix, err = listenUnix(ctx, a.AdminSocket)
	add(err)
	if err := errors.Join(errs...); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// note records what is open.
func (s *sockets) note(h *health) {
	for _, c := range s.tftp {
		h.opened(serverTFTP, c.LocalAddr().String(), nil)
	}
	for _, c := range s.dnsUDP {
		h.opened(serverDNS, c.LocalAddr().String(), nil)
	}
	for _, l := range s.dnsTCP {
		h.opened(serverDNS, l.Addr().String(), nil)
	}
	h.opened(serverHTTP, s.http.Addr().String(), nil)
	h.opened(serverAdmin, s.admin.Addr().String(), nil)
	h.opened(serverAdmin, s.adminUnix.Addr().String(), nil)
}

// openTFTP opens the port of TFTP, unless it is off.
func (s *sockets) openTFTP(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	conn, err := listenUDP(ctx, address)
	if err == nil {
		s.tftp = append(s.tftp, conn)
	}
	return describe(err, "tftp", "udp", address)
}

// openDNS opens the ports of DNS, unless it is off.
func (s *sockets) openDNS(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	udp, errUDP := listenUDP(ctx, address)
	if errUDP == nil {
		s.dnsUDP = append(s.dnsUDP, udp)
	}
	tcp, errTCP := listenTCP(ctx, address)
	if errTCP == nil {
		s.dnsTCP = append(s.dnsTCP, tcp.(*net.TCPListener))
	}
	return errors.Join(describe(errUDP, "dns", "udp", address), describe(errTCP, "dns", "tcp", address))
}

// describe adds the key of the lab file that an address is from, and the process that holds the port.
func describe(err error, key, network, address string) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("appliance.%s: %w: start it as root, or with CAP_NET_BIND_SERVICE, or take a port above 1023", key, err)
	}
	return fmt.Errorf("appliance.%s: %w", key, portowner.Explain(err, network, address))
}

func listenUDP(ctx context.Context, address string) (*net.UDPConn, error) {
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// listenUnix opens the socket of the command line. A stale one is replaced; one that answers belongs to another daemon.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("appliance.admin_socket: another bootlab is running at %s: stop it first", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("appliance.admin_socket: %w: start it as root, or take a folder that this user may write to", err)
	}
	if err != nil {
		return nil, fmt.Errorf("appliance.admin_socket: %w", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("appliance.admin_socket: %w", err)
	}
	return l, nil
}

// close closes what is open; closing twice does no harm.
func (s *sockets) close() {
	for _, c := range slices.Concat(s.tftp, s.dnsUDP) {
		_ = c.Close()
	}
	for _, l := range s.dnsTCP {
		_ = l.Close()
	}
	for _, l := range []net.Listener{s.http, s.admin, s.adminUnix} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// makeFolders makes the folders of learned state and of the admin socket.
func makeFolders(a lab.Appliance) error {
	if err := os.MkdirAll(a.State, 0o750); err != nil {
		return fmt.Errorf("appliance.state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(a.AdminSocket), 0o755); err != nil {
		return fmt.Errorf("appliance.admin_socket: %w", err)
	}
	return nil
}
