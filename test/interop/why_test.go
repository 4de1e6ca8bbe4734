package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/observe/event"
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
	for _, want := range []string{"w2: stopped at stage files since ", "file missing", "put the file there", "w1: no request received yet", "not booted: w2, w1"} {
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

// TestUpCauses: while a cluster is brought up, each of its machines stops for another reason. The cluster names the cause of each, why has it
// as a word, and bootlab up, which gives up, says all of them.
func TestUpCauses(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.127.3")
	l.lan = "    pools: {few: {range: NET.100-NET.100}}\n"
	l.profiles = "  broken: {kernel: images/nosuch, initrd: [images/i], install: never}\n"
	l.hosts, l.more = "", "clusters:\n  prod: {kind: kubernetes, address: NET.5}\n"
	for i, profile := range []string{"broken", "install", "install", "install", "install"} {
		ip := fmt.Sprintf("ip: NET.%d, ", 20+i)
		if i == 4 { // it needs an address of the pool, which is full
			ip = ""
		}
		l.hosts += fmt.Sprintf("  cp%d: {mac: \"52:54:00:00:00:%d\", %scluster: prod, role: control-plane, profile: %s}\n", i, 20+i, ip, profile)
	}
	l.file("files/ignition/control-plane.ign", []byte(`{"ignition":{"version":"3.3.0"}}`))
	l.file("files/images/k", bytes.Repeat([]byte("kernel\n"), 8<<20))
	l.write()
	d := start(t, l)
	d.machine(t, "02:00:00:00:ff:71").wire(t).bind(mac("52:54:00:99:00:01"))
	if out, err := d.bootlab("up", "--yes", "--detach", "prod"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	} else if strings.Contains(out, "no packet of it") {
		t.Errorf("of machines that an admin has to switch on, up says what nobody can know:\n%s", out)
	}

	boot := func(i int) (m *machine, addr, name string) {
		name, addr = fmt.Sprintf("52:54:00:00:00:%d", 20+i), fmt.Sprintf("10.127.3.%d", 20+i)
		m = d.machine(t, name)
		m.wire(t).bind(mac(name), with(60, "PXEClient:Arch:00007:UNDI:003010"), with(93, "\x00\x07"), with(77, "iPXE"), with(175, "\xb1\x01\x01"))
		m.run("ip", "addr", "add", addr+"/24", "dev", "eth0")
		if _, _, err := m.script(addr, strings.ReplaceAll(name, ":", "-")); i > 0 && i < 3 && err != nil {
			t.Fatal(err)
		}
		return m, addr, name
	}
	m, addr, _ := boot(0)
	m.get(addr, "/boot/52-54-00-00-00-20/boot.ipxe")
	m.get(addr, "/files/images/nosuch")
	m, addr, _ = boot(1) // it takes a part of its kernel, and ends
	m.run("sh", "-c", "curl -s --limit-rate 1M --interface "+addr+" http://"+d.addr+":8080/files/images/k | head -c 100000 > /dev/null")
	m, addr, _ = boot(2)
	m.get(addr, "/config/52-54-00-00-00-22/AAAAAAAAAAAAAAAAAAAAAAAAAA/ignition")
	m, _, _ = boot(3)
	m.run("curl", "-s", "-m", "60", "tftp://"+d.addr+"/nosuch.efi")
	d.machine(t, "52:54:00:00:00:24").wire(t).silent(discover(mac("52:54:00:00:00:24")), discover(mac("52:54:00:00:00:10"), dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask)))

	want := []struct {
		cause  string
		reason event.Reason
	}{
		{"images/nosuch: it does not exist", event.NotFound},
		{"the transfer of a file broke off at", event.Closed},
		{"its token is of no boot", event.WrongToken},
		{"nosuch.efi: it is not to be served", event.NotServed},
		{"got no offer: the pool is full", event.PoolFull},
	}
	for i, w := range want {
		host := fmt.Sprintf("cp%d", i)
		d.until(host+" is stuck, and why", func() bool {
			machine := d.cluster().Machines[i]
			return machine.Host == host && strings.Contains(machine.Cause, w.cause)
		})
		if a := d.why(t, host); a.State != "stopped" || a.Reason != w.reason || !strings.Contains(a.Cause, w.cause) {
			t.Errorf("%s: reason %q, cause %q", host, a.Reason, a.Cause)
		}
	}
	out, err := d.bootlab("up", "--yes", "--timeout", "1s", "prod")
	for i, w := range want {
		if err == nil || !strings.Contains(out, w.cause) || !strings.Contains(out, fmt.Sprintf("bootlab why cp%d", i)) {
			t.Errorf("up does not say why cp%d stopped (%q): %v\n%s", i, w.cause, err, out)
		}
	}
}

// TestWhyPower: a machine that stopped in the middle of a boot and is off is off, not stuck; one whose controller is silent is what its boot
// shows, and why says that the controller is silent.
func TestWhyPower(t *testing.T) {
	t.Parallel()
	controller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Systems") {
			_, _ = w.Write([]byte(`{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`))
			return
		}
		_, _ = w.Write([]byte(`{"PowerState": "Off", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`))
	}))
	t.Cleanup(controller.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	l := newLab(t, "10.127.4")
	l.hosts = "  off: {mac: \"52:54:00:00:00:21\", ip: NET.21, profile: install, bmc: {redfish: \"" + controller.URL + "\"}}\n" +
		"  hung: {mac: \"52:54:00:00:00:22\", ip: NET.22, profile: install, bmc: {redfish: \"" + silent.URL + "\"}}\n"
	l.write()
	d := start(t, l)
	d.until("why says that the machine is off", func() bool { // a busy controller may be late
		a := d.why(t, "off")
		return a.State == "stopped" && a.Stage == event.StageMachine && strings.Contains(a.Cause, "off") && strings.Contains(strings.Join(a.Do, " "), "bootlab power on off")
	})
	if a := d.why(t, "hung"); a.State != "unknown" || !strings.Contains(strings.Join(a.Facts, " "), "BMC does not answer") {
		t.Errorf("a machine whose controller is silent: %+v", a)
	}
}

// TestAddressConflict: a machine that has requested its address runs, and is not well while another one uses that: hosts, why and the command agree, and
// name the MAC.
func TestAddressConflict(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.127.6")
	l.hosts = "  own: {mac: \"52:54:00:00:00:13\", ip: NET.13}\n"
	l.write()
	d := start(t, l)
	own := func() api.Host {
		t.Helper()
		hosts, err := d.client.Hosts(t.Context())
		if err != nil || len(hosts) == 0 {
			t.Fatal(hosts, err)
		}
		return hosts[slices.IndexFunc(hosts, func(h api.Host) bool { return h.Name == "own" })]
	}
	w := d.machine(t, "52:54:00:00:00:13").wire(t)
	w.ask(discover(mac("52:54:00:00:00:13")))
	d.until("an offer that its system did not request is no sign that it runs", func() bool {
		return own().MachineStage == "booting" && d.why(t, "own").State == "booting"
	})
	w.bind(mac("52:54:00:00:00:13"))
	d.until("its system runs", func() bool { return own().MachineStage == "running" })
	other := d.machine(t, "02:00:00:00:00:99")
	other.run("ip", "addr", "add", "10.127.6.13/24", "dev", "eth0")
	d.until("another machine uses its address", func() bool {
		other.run("ip", "neigh", "flush", "all")
		other.run("curl", "-s", "-m", "2", "http://"+d.addr+":8080/") // asks for the appliance's address by ARP
		h := own()
		return h.MachineStage == "failing" && strings.Contains(h.MachineWhy, "02:00:00:00:00:99")
	})
	if a := d.why(t, "own"); a.State != "stopped" || a.MachineStage != "failing" || !strings.Contains(a.Cause, "another machine uses its address") {
		t.Errorf("why: %+v", a)
	}
}
