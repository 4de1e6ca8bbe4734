package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/bootload"
	"github.com/bootlab/bootlab/test/support/netns"
)

const rackVar = "BOOTLAB_INTEROP_RACK" // set: this process is a rack of machines in a namespace of the test's

// runRack starts the machines of its input.
func runRack() {
	if err := bootload.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

// A rack is many machines behind one relay, in one namespace.
type rack struct {
	*machine
	config bootload.Config
}

// rack makes n machines, NET.10 and on. They boot the profile rack of rackLab.
func (d *daemon) rack(t *testing.T, n int) *rack {
	t.Helper()
	program, err := fs.Stat(firmware.FS(""), firmware.UEFI)
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{machine: d.machine(t, "52:54:00:00:ff:50", d.net+".2")}
	r.config = bootload.Config{
		Server: netip.MustParseAddr(d.addr), Relay: netip.MustParseAddr(d.net + ".2"), Limit: 5 * time.Minute,
		Sizes: bootload.Sizes{Program: program.Size(), Kernel: 7_000_000, Initrd: 700_000},
	}
	var batch strings.Builder
	for i := range n {
		addr := netip.MustParseAddr(fmt.Sprintf("%s.%d", d.net, 20+i))
		fmt.Fprintf(&batch, "addr add %s/32 dev eth0\n", addr)
		r.config.Machines = append(r.config.Machines, bootload.Machine{MAC: rackMAC(i), Addr: addr})
	}
	d.behindRouter(t, d.net+".2", d.net+".20", n)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := r.Command(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("give every machine its address: %v\n%s", err, out)
	}
	return r
}

// behindRouter puts n addresses from first on behind a router at another one, for the appliance: a namespace plays many machines, which have no
// MACs on the wire.
func (d *daemon) behindRouter(t *testing.T, router, first string, n int) {
	t.Helper()
	for addr := netip.MustParseAddr(first); n > 0; n, addr = n-1, addr.Next() {
		netns.Run(t, "ip", "route", "add", addr.String()+"/32", "via", router)
	}
}

func rackMAC(i int) string { return fmt.Sprintf("52:54:00:5a:00:%02x", i) }

// rackLab adds n machines to a lab, that install themselves.
func rackLab(l *labFile, n int) {
	l.lan = "    pools: {guests: {range: NET.200-NET.250}}\n"
	l.profiles = `  rack: {kernel: images/k, initrd: [images/i], args: ["config={{.ConfigURL}}", "done={{.DoneURL}}"], config: rack.cfg, install_to: /dev/vda}` + "\n"
	for i := range n {
		l.hosts += fmt.Sprintf("  rack-%d: {mac: %q, ip: NET.%d, profile: rack}\n", i, rackMAC(i), 20+i)
	}
	l.file("files/rack.cfg", []byte("name={{.Host.Name}}\naddress={{.Host.IP}}\n"))
	l.write()
}

// on starts the rack and waits until the last machine has finished or failed.
func (r *rack) on(t *testing.T) (result bootload.Result) {
	t.Helper()
	order, err := json.Marshal(r.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := r.Command(ctx, self)
	cmd.Env = append(os.Environ(), rackVar+"=1")
	cmd.Stdin = bytes.NewReader(order)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		t.Fatalf("the rack: %v\n%s", err, stderr.Bytes())
	}
	return result
}

// TestStorm starts a rack of a hundred machines at once: each goes from its firmware's lease to the request that marks it installed. None
// gets another machine's document.
func TestStorm(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "ip")
	const machines = 100
	l := newLab(t, "10.117.1")
	rackLab(l, machines)
	d := start(t, l)
	r := d.rack(t, machines).on(t)
	t.Log(r)
	if r.Done != machines || len(r.Failed) > 0 {
		t.Errorf("%d of %d machines are done", r.Done, machines)
	}
	hosts, err := d.client.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	installed := 0
	for _, h := range hosts {
		if !strings.HasPrefix(h.Name, "rack-") {
			continue
		}
		if h.Install != "installed" {
			t.Errorf("%s: install state %q", h.Name, h.Install)
		}
		installed++
	}
	if installed != machines {
		t.Errorf("%d machines of the rack, want %d", installed, machines)
	}
	// What a machine asks for next may be recorded before the end of what it has got.
	d.wantStages(t, "rack-0", event.DHCPAck, event.DHCPAck, event.ScriptServed, event.FileServed, event.FileServed)
	d.wantStages(t, "rack-0", event.ScriptServed, event.FileServed, event.ConfigServed)
	d.wantStages(t, "rack-0", event.ScriptServed, event.FileServed, event.InstallDone)
	d.wantStages(t, "rack-0", event.DHCPAck, event.TFTPServed) // recorded when the last block is acknowledged: iPXE may be further then
}

// wantStages waits until the timeline of a host has these events, in this order.
func (d *daemon) wantStages(t *testing.T, host string, want ...event.Kind) {
	t.Helper()
	d.until(fmt.Sprintf("the timeline of %s has %v", host, want), func() bool {
		boots, err := d.client.Boots(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		rest := want
		for _, b := range boots {
			for _, e := range b.Events {
				if len(rest) > 0 && e.Kind == rest[0] {
					rest = rest[1:]
				}
			}
		}
		return len(rest) == 0
	})
}
