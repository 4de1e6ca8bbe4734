package configs_test

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/storetest"
)

// A replay is what one installer asks for, in its order and with its headers; docs/os says where that is known from.
type replay struct {
	page    string
	headers []string // "Name: value"
	// asks are documents by name, with the status that they must get; "POST answer" asks as Proxmox does; "done" calls.
	asks []string
	end  string // state after that
	// again is the state after the machine has asked for a script a quarter of an hour later; empty: not asked.
	again install.State
}

func replays() []replay {
	ignition := []string{"User-Agent: Ignition/2.19.0", "Accept: application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1", "Accept-Encoding: identity"}
	curl, cloudInit := []string{"User-Agent: curl/8.5.0"}, []string{"User-Agent: Cloud-Init/24.1"}
	return []replay{
		{"coreos", ignition, []string{"200 bootlab-live.ign", "200 worker.ign", "403 worker.ign", "404 master.ign", "200 done"}, "installed", install.Installed},
		{"flatcar", ignition, []string{"200 bootlab-install.ign", "200 node.bu", "403 node.bu", "200 done"}, "installed", install.Installed},
		{"openshift-agent", curl, []string{"403 agent.ign"}, "booting", install.Installed},
		{"talos", []string{"User-Agent: Go-http-client/1.1"}, []string{"200 control-plane.yaml", "200 control-plane.yaml", "200 control-plane.yaml"}, "installing", install.Installed},
		{"anaconda", append(curl, "X-RHN-Provisioning-MAC-0: ens3 52:54:00:00:02:04"), []string{"200 ks.cfg", "200 disk.ks", "403 ks.cfg", "200 disk.ks", "200 done"}, "installed", install.Installed},
		{"debian", []string{"User-Agent: debian-installer"}, []string{"200 preseed.cfg", "403 preseed.cfg", "200 done"}, "installed", install.Installed},
		{"ubuntu", cloudInit, []string{"200 network-config", "200 meta-data", "200 user-data", "200 vendor-data", "200 user-data", "403 user-data", "200 meta-data", "200 done"}, "installed", install.Installed},
		{"autoyast", curl, []string{"200 autoinst.xml", "200 autoinst.xml", "403 autoinst.xml", "200 done"}, "installed", install.Installed},
		{"agama", curl, []string{"200 profile.json", "200 done"}, "installed", install.Installed},
		{"harvester", []string{"User-Agent: Go-http-client/1.1"}, []string{"200 create.yaml", "403 create.yaml", "200 done"}, "installed", install.Installed},
		{"kairos", []string{"User-Agent: Go-http-client/1.1"}, []string{"200 cloud-config.yaml", "200 cloud-config.yaml", "200 cloud-config.yaml", "200 done"}, "installed", install.Installed},
		{"esxi", []string{"User-Agent: esx-boot/2.0"}, []string{"200 boot.cfg", "200 ks.cfg", "200 done"}, "installed", install.Installed},
		{"proxmox", []string{"Content-Type: application/json; charset=utf-8", "Accept: application/json, application/toml;q=0.5"}, []string{"200 POST answer", "403 POST answer", "200 done"}, "installed", install.Installed},
		{"windows", []string{"User-Agent: iPXE/1.21.1+"}, []string{"200 unattend.xml", "200 winpeshl.ini", "200 install.cmd"}, "installing", install.Installed},
		{"cloud-init", cloudInit, []string{"200 network-config", "200 meta-data", "200 user-data", "200 vendor-data", "404 passwords"}, "live", install.Live},
		{"plain", []string{"User-Agent: Wget"}, []string{"200 host.conf", "403 host.conf", "200 done"}, "installed", install.Installed},
	}
}

// TestOSReplay walks the example of every page through its boot as its installer does, against the real bootService and the real
// HTTP: what it may read and how often, what it may not, and by what it is known to be installed.
func TestOSReplay(t *testing.T) {
	t.Parallel()
	byName := map[string]page{}
	for _, p := range pages(t) {
		byName[p.name] = p
	}
	if n := len(replays()); n != len(byName) {
		t.Errorf("%d systems are played, and %d have a page", n, len(byName))
	}
	for _, play := range replays() {
		t.Run(play.page, func(t *testing.T) {
			t.Parallel()
			l, table := byName[play.page].load(t)
			w := newBootServer(t, l, table)
			script := w.script(t)
			for _, ask := range play.asks {
				status, what, _ := strings.Cut(ask, " ")
				if got := w.ask(what, play.headers, script); got != status {
					t.Errorf("%s: status %s, want %s", what, got, status)
				}
			}
			if got := string(w.installs.Status(w.host).State); got != play.end {
				t.Errorf("the machine is %s, want %s", got, play.end)
			}
			w.now = w.now.Add(15 * time.Minute)
			script = w.script(t)
			if got := w.installs.Status(w.host).State; got != play.again {
				t.Errorf("after it came back it is %s, want %s", got, play.again)
			}
			if local := strings.Contains(script, "starting from its own disk"); local != (play.again == install.Installed) {
				t.Errorf("its script:\n%s", script)
			}
		})
	}
}

// A bootServer serves one machine, by HTTP requests without a network.
type bootServer struct {
	now      time.Time
	host     *lab.Host
	installs *install.Machine
	http     *httpd.Boot
	done     string // the URL that its documents call
}

func (w *bootServer) AddrOf(lab.MAC) (netip.Addr, bool)          { return w.host.IP, true }
func (w *bootServer) MACOf(*lab.Lab, netip.Addr) (lab.MAC, bool) { return w.host.MACs[0], true }
func (w *bootServer) Record(event.Event)                         {}

// Entry reports what Find does.
func (w *bootServer) Entry(netip.Addr, []lab.MAC) (neighbour.Found, error) {
	return neighbour.Found{}, nil
}

// Sender reports what Find does.
func (w *bootServer) Sender(netip.AddrPort, []lab.MAC, time.Time) (neighbour.Found, error) {
	return neighbour.Found{}, nil
}

// Find reports that nothing is known: the installers are on this machine.
func (w *bootServer) Find(netip.Addr, []lab.MAC) (neighbour.Found, error) {
	return neighbour.Found{}, nil
}

func newBootServer(t *testing.T, l *lab.Lab, table *boot.Table) *bootServer {
	t.Helper()
	w := &bootServer{now: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)}
	for _, h := range l.Hosts { // the first of the page's first profile
		if h.Profile != nil && h.Profile.Kernel != "" && w.host == nil && (h.Profile.Install != lab.InstallNever || len(l.Hosts) == 1) {
			w.host = h
		}
	}
	clock, quiet := func() time.Time { return w.now }, slog.New(slog.DiscardHandler)
	var err error
	if w.installs, err = install.Open(t.Context(), install.Config{}, install.Deps{Store: storetest.Memory(), Events: w, Now: clock}); err != nil {
		t.Fatal(err)
	}
	book, err := discovered.Open(t.Context(), discovered.Config{}, discovered.Deps{Store: storetest.Memory(), Log: quiet, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	bootService := boot.New(boot.Deps{Table: func() *boot.Table { return table }, Installs: w.installs, Discovered: book, Leases: w, Neighbours: w, Loops: bootloop.New(clock), Events: w, Now: clock})
	allowed, err := files.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	served := httpd.Compile(l, allowed)
	w.http, err = httpd.NewBoot(httpd.BootConfig{}, httpd.BootDeps{
		Table: func() *httpd.Table { return served }, Boot: bootService, Firmware: fstest.MapFS{}, Leases: w, Mirrors: noMirrors{}, Events: w,
		Registerer: prometheus.NewRegistry(), Log: quiet, Now: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// do makes one request from the machine's address.
func (w *bootServer) do(method, path, body string, headers []string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = netip.AddrPortFrom(w.host.IP, 40000).String()
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	w.http.ServeHTTP(answer, r)
	return answer
}

func (w *bootServer) script(t *testing.T) string {
	t.Helper()
	answer := w.do(http.MethodGet, "/"+lab.BootPath(w.host.MACs[0], lab.ScriptName), "", nil)
	if answer.Code != http.StatusOK {
		t.Fatalf("script: status %d", answer.Code)
	}
	return answer.Body.String()
}

var (
	configURL = regexp.MustCompile(`http://192\.168\.16\.1:8080(/config/[0-9a-f-]+/[A-Z0-9]+)`)
	doneURL   = regexp.MustCompile(`http://192\.168\.16\.1:8080(/done/[0-9a-f-]+/[A-Z0-9]+)`)
)

// ask asks for a document by the token in the script, or what the installer has learned elsewhere. It returns the status.
func (w *bootServer) ask(what string, headers []string, script string) string {
	var answer *httptest.ResponseRecorder
	switch what {
	case "done":
		answer = w.do(http.MethodPost, w.done, `{"event":"finish"}`, headers)
	case "POST answer":
		answer = w.do(http.MethodPost, "/"+lab.PathAnswer, `{"network_interfaces":[{"link":"ens18","mac":"`+w.host.MACs[0].String()+`"}]}`, headers)
	default:
		base := "/config/" + w.host.MACs[0].Hyphens() + "/NONE"
		if m := configURL.FindStringSubmatch(script); m != nil {
			base = m[1]
		}
		answer = w.do(http.MethodGet, base+"/"+what, "", headers)
	}
	if m := doneURL.FindStringSubmatch(answer.Body.String() + script); m != nil {
		w.done = m[1]
	}
	return strconv.Itoa(answer.Code)
}

// noMirrors are none.
type noMirrors struct{}

func (noMirrors) Open(context.Context, *lab.Mirror, string, string) (*mirror.File, error) {
	return nil, fs.ErrNotExist
}
