package interop

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// why returns what bootlab why says of a machine; it must exit with 1 if the machine stopped.
func (d *daemon) why(t *testing.T, host string) (a api.Diagnosis) {
	t.Helper()
	out, err := d.command(t.Context(), "why", host, "--json").Output()
	var all []api.Diagnosis
	if bad := json.Unmarshal(out, &all); bad != nil || len(all) != 1 {
		t.Fatalf("why %s: %v, %v\n%s", host, err, bad, out)
	}
	if all[0].Stopped() != (err != nil) {
		t.Errorf("why %s: %s, and the command ends with %v", host, all[0].State, err)
	}
	return all[0]
}

// TestWhyKernelMissing: a machine whose kernel does not exist gets its script and stops; why names the file. With the file it goes on.
func TestWhyKernelMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.127.1")
	l.profiles = "  broken: {kernel: images/nosuch, initrd: [images/i], install: never}\n"
	l.hosts = "  w2: {mac: \"52:54:00:00:00:12\", ip: NET.12, profile: broken}\n"
	l.write()
	d := start(t, l)
	if a := d.why(t, "w2"); a.State != "unknown" || !strings.Contains(a.Cause, "no packet of it was received") {
		t.Errorf("before its first packet: %+v", a)
	}
	m := d.machine(t, "52:54:00:00:00:12")
	w := m.wire(t)
	w.bind(mac("52:54:00:00:00:12"), with(60, "PXEClient:Arch:00007:UNDI:003010"), with(93, "\x00\x07"), with(77, "iPXE"), with(175, "\xb1\x01\x01"))
	m.run("ip", "addr", "add", "10.127.1.12/24", "dev", "eth0")
	if status, body := m.get("10.127.1.12", "/boot/52-54-00-00-00-12/boot.ipxe"); status != 200 {
		t.Fatalf("its script: %d %s", status, body)
	}
	if status, _ := m.get("10.127.1.12", "/files/images/nosuch"); status == 200 {
		t.Fatal("the kernel exists")
	}
	d.until("why names the kernel", func() bool {
		a := d.why(t, "w2")
		return a.State == "stopped" && a.Stage == "files" && strings.Contains(a.Cause, "images/nosuch") && len(a.Evidence) > 0
	})
	out, err := d.bootlab("why", "w2", "w1")
	for _, want := range []string{"w2: stopped at stage files since ", "file missing", "bootlab images pull", "w1: unknown", "not booted: w2, w1"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("no %q: %v\n%s", want, err, out)
		}
	}
	l.file("files/images/nosuch", []byte("kernel\n"))
	d.until("with the kernel it goes on", func() bool {
		m.get("10.127.1.12", "/files/images/nosuch")
		return d.why(t, "w2").State == "booting"
	})
}

// TestWhyPoolFull: a machine that gets no address because the pool is full; why says so, and who it is.
func TestWhyPoolFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.127.2")
	l.lan = "    pools: {few: {range: NET.100-NET.101}}\n"
	l.hosts = "  late: {mac: \"52:54:00:00:00:22\", profile: install}\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:61").wire(t)
	probe := discover(mac("52:54:00:00:00:10"), dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask))
	w.bind(mac("52:54:00:99:00:01"))
	w.bind(mac("52:54:00:99:00:02"))
	w.silent(discover(mac("52:54:00:00:00:22")), probe)
	d.until("why names the pool", func() bool {
		a := d.why(t, "late")
		return a.State == "stopped" && a.Stage == "address" && strings.Contains(a.Cause, "got no offer") && strings.Contains(strings.Join(a.Facts, " "), "pool lan/few is full")
	})
	if a := d.why(t, "52:54:00:00:00:22"); a.Host != "late" {
		t.Errorf("by its MAC it is %q", a.Host)
	}
}
