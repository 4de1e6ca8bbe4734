package e2e

import (
	"context"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// BenchmarkSilentHypervisor reports how long DNS and DHCP (DISCOVER to OFFER) answer, at the median and at the 99th percentile, in
// milliseconds, beside a hypervisor that answers and beside one that is frozen, while machines are listed all the time.
func BenchmarkSilentHypervisor(b *testing.B) {
	netns.Need(b, libvirtd.Needs()...)
	netns.Enter(b)
	libvirt := startLibvirt(b)
	r := newRigHere(b, vmLab(libvirt.URI, "bios"), bootFiles)
	r.bootlab(b, "vm", "create", "node")
	client := r.seg.NewClient(b)
	client.Run(b, "ip", "addr", "add", "10.77.0.9/24", "dev", "eth0")
	stop := r.list(b)
	dns, dhcp := dialIn(b, client, ":0", appliance+":53"), dialIn(b, client, "10.77.0.9:67", appliance+":67")
	discover, err := dhcpv4.NewDiscovery(net.HardwareAddr{0x52, 0x54, 0, 0x77, 0, 0x21}, dhcpv4.WithRelay(net.IPv4(10, 77, 0, 9)))
	if err != nil {
		b.Fatal(err)
	}
	query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04node\x04prod\x03lab\x04test\x00\x00\x01\x00\x01")
	const answers = 2000
	measure := func(name string) {
		for what, ask := range map[string]func() time.Duration{
			"dns":  func() time.Duration { return roundTrip(b, dns, query) },
			"dhcp": func() time.Duration { return roundTrip(b, dhcp, discover.ToBytes()) },
		} {
			took := make([]time.Duration, answers)
			for i := range took {
				took[i] = ask()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[answers/2].Microseconds())/1000, what+"-"+name+"-p50-ms")
			b.ReportMetric(float64(took[answers*99/100].Microseconds())/1000, what+"-"+name+"-p99-ms")
		}
	}
	for b.Loop() {
		measure("beside-it")
		if err := libvirt.Freeze(); err != nil {
			b.Fatal(err)
		}
		measure("frozen")
		if err := libvirt.Thaw(); err != nil {
			b.Fatal(err)
		}
	}
	stop()
}

// list lists machines until the function that it returns is called.
func (r *rig) list(t testing.TB) (stop func()) {
	c := r.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = c.VMs(ctx)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

// roundTrip sends a datagram and returns how long its answer takes.
func roundTrip(t testing.TB, c *net.UDPConn, datagram []byte) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := c.Write(datagram); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(start.Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var buf [1500]byte
	if _, err := c.Read(buf[:]); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// dialIn opens a socket in the namespace of a client.
func dialIn(t testing.TB, client *netns.Client, local, remote string) *net.UDPConn {
	t.Helper()
	opened := make(chan net.Conn, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		ns, err := unix.Open("/var/run/netns/"+client.Name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
			_ = unix.Close(ns)
		}
		if err != nil {
			failed <- err
			return
		}
		at, err := net.ResolveUDPAddr("udp4", local)
		if err != nil {
			failed <- err
			return
		}
		c, err := (&net.Dialer{LocalAddr: at}).Dial("udp4", remote)
		if err != nil {
			failed <- err
			return
		}
		opened <- c
	}()
	select {
	case c := <-opened:
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UDPConn)
	case err := <-failed:
		t.Fatal(err)
		return nil
	}
}
