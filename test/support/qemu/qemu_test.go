package qemu_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

func TestMain(m *testing.M) {
	// The guest is built before the tests lose the network. A failure shows in the tests.
	flag.Parse()
	if !testing.Short() && os.Geteuid() == 0 {
		_, _ = guest.Build(context.Background(), guest.CacheDir())
	}
	netns.Main(m)
}

const (
	address = "10.77.0.1"
	mac     = "52:54:00:77:00:01"
)

// A standIn is dnsmasq and a web server in place of bootlab, to test the guest and this package without it.
type standIn struct {
	seg    *netns.Segment
	files  guest.Files
	script func(w http.ResponseWriter) // answers /script
	after  func(w http.ResponseWriter) // answers /script once /done was asked for; nil: script does
	nbps   string                      // folder of the boot programs

	installed atomic.Bool

	mu    sync.Mutex
	start time.Time
	log   []string
}

func (s *standIn) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%6.2fs ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
}

func newStandIn(t testing.TB, extra ...string) *standIn {
	t.Helper()
	netns.Need(t, append(qemu.Needs(), "dnsmasq")...)
	netns.Need(t, guest.Programs()...)
	files, err := guest.Build(t.Context(), guest.CacheDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{seg: netns.NewSegment(t, address+"/24"), files: files, start: time.Now(), nbps: programs(t)}
	s.dnsmasq(t, extra)
	s.http(t)
	return s
}

// programs lays the boot programs into a folder. BOOTLAB_NBP names another folder, to compare builds.
func programs(t testing.TB) string {
	if dir := os.Getenv("BOOTLAB_NBP"); dir != "" {
		return dir
	}
	fsys, dir := firmware.FS(""), t.TempDir()
	for _, name := range []string{firmware.BIOS, firmware.UEFI} {
		f, err := fsys.Open(name)
		if err != nil {
			t.Fatalf("make assets: %v", err)
		}
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.ReadFrom(f)
		f.Close()
		out.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	autoexec := "#!ipxe\nchain http://" + address + ":8080/script || exit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "autoexec.ipxe"), []byte(autoexec), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *standIn) dnsmasq(t testing.TB, extra []string) {
	conf := append([]string{
		"port=0", "bind-interfaces", "interface=" + s.seg.Bridge, "except-interface=lo",
		"dhcp-range=10.77.0.100,10.77.0.200,12h", "dhcp-authoritative", "no-ping", "log-dhcp", "log-facility=-", "user=root",
		"dhcp-leasefile=" + filepath.Join(t.TempDir(), "leases"), "pid-file=",
		"dhcp-option=3,10.77.0.1", "dhcp-option=6,10.77.0.1",
		"dhcp-option=121,10.9.0.0/24,10.77.0.9,0.0.0.0/0,10.77.0.1", "dhcp-option=119,one.lab,two.lab",
		"enable-tftp", "tftp-root=" + s.nbps, "dhcp-no-override",
		"dhcp-match=set:ipxe,175", "dhcp-match=set:efi64,option:client-arch,7", "dhcp-vendorclass=set:http,HTTPClient",
		"dhcp-option=encap:175,176,1b",
		"enable-ra", "dhcp-range=fd77::,ra-only", // without a router advertisement iPXE waits for one: 16 s a boot
	}, extra...)
	path := filepath.Join(t.TempDir(), "dnsmasq.conf")
	if err := os.WriteFile(path, []byte(strings.Join(conf, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "ip", "addr", "add", "fd77::1/64", "dev", s.seg.Bridge, "nodad")
	cmd := exec.Command("dnsmasq", "-k", "-C", path)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			for line := range strings.Lines(string(buf[:n])) {
				if strings.Contains(line, "DHCP") || strings.Contains(line, "sent") {
					s.note("%s", strings.TrimSpace(line))
				}
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
		if t.Failed() || testing.Verbose() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("the stand-in logged:\n%s", strings.Join(s.log, "\n"))
		}
	})
}

// bootTags are dnsmasq's options for "firmware gets iPXE, iPXE gets the script".
func bootTags() []string {
	base := "http://" + address + ":8080/"
	return []string{
		"dhcp-boot=tag:!ipxe,tag:!efi64,tag:!http,undionly.kpxe",
		"dhcp-boot=tag:!ipxe,tag:efi64,ipxe.efi",
		"dhcp-option-force=tag:http,60,HTTPClient", "dhcp-boot=tag:http," + base + "ipxe.efi",
		"dhcp-boot=tag:ipxe," + base + "script",
	}
}

func (s *standIn) http(t testing.TB) {
	l, err := net.Listen("tcp", address+":8080")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	file := func(name, path string) {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			http.ServeFile(w, r, path)
			s.note("%s %s took %.2fs (%s)", r.Method, name, time.Since(began).Seconds(), r.UserAgent())
		})
	}
	file("vmlinuz", s.files.Kernel)
	file("initrd.img", s.files.Initrd)
	file("disk.img", s.files.Disk)
	file("ipxe.efi", filepath.Join(s.nbps, firmware.UEFI))
	file("autoexec.ipxe", filepath.Join(s.nbps, "autoexec.ipxe"))
	mux.HandleFunc("/script", func(w http.ResponseWriter, r *http.Request) {
		s.note("GET script (%s)", r.UserAgent())
		if s.installed.Load() && s.after != nil {
			s.after(w)
			return
		}
		s.script(w)
	})
	mux.HandleFunc("/config", func(w http.ResponseWriter, r *http.Request) {
		s.note("GET config")
		fmt.Fprintf(w, "disk=/dev/vda\nimage=http://%s:8080/disk.img\nmessage=written-for-%s\n", address, mac)
	})
	mux.HandleFunc("/done", func(w http.ResponseWriter, r *http.Request) { s.note("GET done"); s.installed.Store(true) })
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
}

func (s *standIn) install(w http.ResponseWriter) {
	base := "http://" + address + ":8080/"
	fmt.Fprintf(w, `#!ipxe
kernel %[1]svmlinuz initrd=initrd.img console=ttyS0 quiet no_timer_check BOOTIF=01-${netX/mac:hexhyp} bootlab.config=%[1]sconfig bootlab.done=%[1]sdone
initrd --name initrd.img %[1]sinitrd.img
boot
`, base)
}

func bootDisk(fw qemu.Firmware) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if fw == qemu.BIOS || fw == qemu.BIOSPlain {
			fmt.Fprint(w, "#!ipxe\nsanboot --no-describe --drive 0x80 || exit\n")
			return
		}
		fmt.Fprint(w, "#!ipxe\nexit 1\n")
	}
}

// patience bounds each step of a machine, which takes seconds. It only ends what hangs.
const patience = 5 * time.Minute

// TestStandInInstall installs a machine of every kind of firmware from the stand-in, to test the guest and this package
// without the daemon. test/e2e boots the same machines, so it runs only with the long tests.
func TestStandInInstall(t *testing.T) {
	if os.Getenv("BOOTLAB_E2E_INSTALL") == "" {
		t.Skip("test/e2e boots the same machines from the daemon: make e2e-install")
	}
	for _, fw := range []qemu.Firmware{qemu.BIOS, qemu.BIOSPlain, qemu.UEFIPXE, qemu.UEFIHTTP} {
		t.Run(string(fw), func(t *testing.T) {
			s := newStandIn(t, bootTags()...)
			s.script, s.after = s.install, bootDisk(fw)
			m := qemu.Start(t, qemu.Config{Bridge: s.seg.Bridge, MAC: mac, Firmware: fw, Disk: qemu.NewDisk(t, 1<<30)})
			t.Log("kernel", m.Await(t, patience, "GUEST kernel").At)
			t.Log("lease", m.Await(t, patience, "GUEST lease"))
			m.Await(t, patience, "GUEST message written-for-"+mac)
			t.Log("written", m.Await(t, patience, "GUEST written").At)
			t.Log("done", m.Await(t, patience, "GUEST install done").At)
			t.Log("from disk", m.Await(t, patience, "GUEST installed system booted from disk").At)
			m.Await(t, patience, "GUEST message written-for-"+mac)
			t.Log("up", m.Await(t, patience, "GUEST installed system up").At)
		})
	}
}
