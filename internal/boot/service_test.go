package boot_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/host/link/neighbour"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

var (
	mac    = lab.MAC{0x52, 0x54, 0, 0, 2, 4}
	addr   = netip.MustParseAddr("192.168.16.24")
	intrud = netip.MustParseAddr("192.168.16.66")
)

const labFile = `
version: 1
lab: test
domain: lab.test
appliance: {files: files}
networks:
  n:
    subnet: 192.168.16.0/24
    interface: br0
    address: 192.168.16.1
    pools: {pooleds: {range: 192.168.16.200-192.168.16.210, profile: live}}
profiles:
  disk: {kernel: k, initrd: [i], config: "{{.Host.Role}}.cfg", install_to: /dev/vda}
  live: {kernel: k, initrd: [i]}
hosts:
  worker-0: {mac: "52:54:00:00:02:04", ip: 192.168.16.24, role: worker, profile: disk, vars: {secret: s3}}
  switch: {mac: "52:54:00:00:02:05", ip: 192.168.16.25}
`

// A rig is a boot.Service over real packages.
type rig struct {
	*boot.Service
	installs   *install.Machine
	discovered *discovered.Book
	lab        *lab.Lab
	table      *boot.Table
	events     []event.Event
	leases     map[lab.MAC]netip.Addr
	found      neighbour.Found // of every address
	sender     neighbour.Found // of every request by TFTP
	asked      [][]lab.MAC     // of the neighbours, one for each request
	loops      *bootloop.Detector
}

func (r *rig) Record(e event.Event) { r.events = append(r.events, e) }

// count returns how many events of that kind were recorded.
func (r *rig) count(k event.Kind) (n int) {
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func (r *rig) Entry(_ netip.Addr, own []lab.MAC) (neighbour.Found, error) {
	return r.found, nil
}

// Sender returns what frames show of a request by TFTP.
func (r *rig) Sender(netip.AddrPort, []lab.MAC, time.Time) (neighbour.Found, error) {
	return r.sender, nil
}

func (r *rig) Find(_ netip.Addr, own []lab.MAC) (neighbour.Found, error) {
	r.asked = append(r.asked, own)
	return r.found, nil
}

func (r *rig) AddrOf(m lab.MAC) (netip.Addr, bool) { a, ok := r.leases[m]; return a, ok }

// Script requests a script and receives it.
func (r *rig) Script(ctx context.Context, mac lab.MAC, from netip.Addr, name string) ([]byte, error) {
	script, err := r.Service.Script(ctx, mac, from, name)
	if err != nil {
		return nil, err
	}
	return script.Body, script.Received(ctx)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "worker.cfg"), "secret={{.Host.Vars.secret}} done={{.DoneURL}}")
	write(t, filepath.Join(dir, "lab.yaml"), labFile)
	l, err := load.Lab(filepath.Join(dir, "lab.yaml"), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, l, table)
}

func rigOf(t testing.TB, l *lab.Lab, table *boot.Table) *rig {
	t.Helper()
	return rigOn(t, l, table, storetest.Memory())
}

// rigOn keeps install states in a store.
func rigOn(t testing.TB, l *lab.Lab, table *boot.Table, states store.Store) *rig {
	t.Helper()
	r := &rig{lab: l, table: table, loops: bootloop.New(time.Now), leases: map[lab.MAC]netip.Addr{mac: addr}}
	var err error
	r.installs, err = install.Open(t.Context(), install.Config{}, install.Deps{Store: states, Events: r, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if r.discovered, err = discovered.Open(t.Context(), discovered.Config{}, discovered.Deps{Store: storetest.Memory(), Log: slog.New(slog.DiscardHandler), Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	r.Service = boot.New(boot.Deps{Table: func() *boot.Table { return r.table }, Installs: r.installs, Discovered: r.discovered, Leases: r, Neighbours: r, Loops: r.loops, Events: r, Now: time.Now})
	return r
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// token asks for the script of worker-0 and returns the token in it.
func (r *rig) token(t *testing.T) string {
	t.Helper()
	if _, err := r.Script(t.Context(), mac, addr, lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	doc, err := r.script(t)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func (r *rig) script(t *testing.T) (string, error) {
	t.Helper()
	h := r.lab.Host("worker-0")
	decision, err := r.installs.Boot(t.Context(), h, install.Request{}) // the same boot: the same token
	return decision.Token, err
}

// TestConfigIsForOneMachineAlone tries every way to get at a document that is another's.
func TestConfigIsForOneMachineAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		mac    lab.MAC
		token  string // empty: the right one
		from   netip.Addr
		doc    string
		status int // 0: served
	}{
		{"its own", mac, "", addr, "worker.cfg", 0},
		{"wrong address", mac, "", intrud, "worker.cfg", 403},
		{"wrong token", mac, "guess", addr, "worker.cfg", 403},
		{"wrong MAC", lab.MAC{0x52, 0x54, 0, 0, 2, 5}, "", addr, "worker.cfg", 403},
		{"unknown MAC", lab.MAC{2}, "", addr, "worker.cfg", 403},
		{"wrong name", mac, "", addr, "master.cfg", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			token := r.token(t)
			if tt.token != "" {
				token = tt.token
			}
			doc, err := r.Config(t.Context(), tt.mac, token, tt.doc, tt.from)
			if tt.status == 0 {
				if err != nil || !strings.HasPrefix(string(doc.Body), "secret=s3 done=http://192.168.16.1:8080/done/52-54-00-00-02-04/") {
					t.Fatalf("document %v, %v", doc, err)
				}
				return
			}
			var status interface{ HTTPStatus() int }
			if !errors.As(err, &status) || status.HTTPStatus() != tt.status {
				t.Errorf("error %v, want status %d", err, tt.status)
			}
			if last := r.events[len(r.events)-1]; last.Kind != event.ConfigRefused || last.Err == "" {
				t.Errorf("last event %+v, want a refusal with its reason", last)
			}
		})
	}
}

// TestScriptIsForOneMachineAlone: a script holds a token, so that no other machine may get it.
func TestScriptIsForOneMachineAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	script, err := r.Script(t.Context(), mac, intrud, lab.ScriptName)
	var status interface{ HTTPStatus() int }
	if !errors.As(err, &status) || status.HTTPStatus() != 403 || len(script) > 0 {
		t.Errorf("another machine got %q, %v; want 403", script, err)
	}
	if got := r.installs.Status(r.lab.Host("worker-0")).State; got != install.Armed {
		t.Errorf("another machine's request began a boot: %s", got)
	}
}

func TestSecondReaderIsRefused(t *testing.T) {
	t.Parallel()
	r, ctx := newRig(t), context.Background()
	token := r.token(t)
	doc, err := r.Config(ctx, mac, token, "worker.cfg", addr)
	if err != nil {
		t.Fatal(err)
	}
	// Of two at a time only one can be the last: the other waits.
	var status interface{ HTTPStatus() int }
	if _, err := r.Config(ctx, mac, token, "worker.cfg", addr); !errors.As(err, &status) || status.HTTPStatus() != 503 {
		t.Fatalf("two readers at a time: %v, want 503", err)
	}
	doc.Release()
	// A read that broke off is not counted, a complete one is.
	if doc, err = r.Config(ctx, mac, token, "worker.cfg", addr); err != nil {
		t.Fatalf("after a read that broke off: %v", err)
	}
	defer doc.Release()
	if err := doc.Read(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	for range 11 { // as often as cloud-init asks for what it is refused
		if _, err := r.Config(ctx, mac, token, "worker.cfg", addr); !errors.Is(err, install.ErrReads) {
			t.Errorf("second reader: %v, want ErrReads", err)
		}
	}
	if n := r.refusals(install.ErrReads); n != 1 {
		t.Errorf("a repeated second read makes %d events, want 1", n)
	}
	for range 3 {
		if _, err := r.Config(ctx, mac, "guess", "worker.cfg", addr); !errors.Is(err, install.ErrToken) {
			t.Errorf("a guess: %v, want ErrToken", err)
		}
	}
	if n := r.refusals(install.ErrToken); n != 3 {
		t.Errorf("three guesses make %d events: each is one of its own", n)
	}
}

// refusals counts the events that a config document was refused with that error.
func (r *rig) refusals(why error) (n int) {
	for _, e := range r.events {
		if e.Kind == event.ConfigRefused && strings.Contains(e.Err, why.Error()) {
			n++
		}
	}
	return n
}

// TestReloadDuringRead checks that a read is recorded though the lab has changed since the document was rendered: the host
// has another document, or is gone.
func TestReloadDuringRead(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]*strings.Replacer{
		"another document":  strings.NewReplacer(`config: "{{.Host.Role}}.cfg"`, `config: "other.cfg"`),
		"another address":   strings.NewReplacer("ip: 192.168.16.24", "ip: 192.168.16.34"),
		"no such host":      strings.NewReplacer("worker-0: {mac: \"52:54:00:00:02:04\"", "worker-0: {mac: \"52:54:00:00:02:14\""),
		"no longer its NIC": strings.NewReplacer("worker-0: {mac: \"52:54:00:00:02:04\", ip: 192.168.16.24", "other: {mac: \"52:54:00:00:02:04\", ip: 192.168.16.26"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ctx := newRig(t), t.Context()
			token := r.token(t)
			doc, err := r.Config(ctx, mac, token, "worker.cfg", addr)
			if err != nil {
				t.Fatal(err)
			}
			before := r.table
			_, r.table = tableOf(t, t.TempDir(), edit.Replace(labFile))
			if err := doc.Read(ctx, time.Second); err != nil {
				t.Fatal(err)
			}
			doc.Release()
			r.table = before
			if _, err := r.Config(ctx, mac, token, "worker.cfg", addr); !errors.Is(err, install.ErrReads) {
				t.Errorf("a second read: %v, want ErrReads", err)
			}
		})
	}
}

func TestDone(t *testing.T) {
	t.Parallel()
	r, ctx := newRig(t), context.Background()
	token := r.token(t)
	if err := r.Done(ctx, mac, token, intrud); err == nil {
		t.Error("done from another machine's address was accepted")
	}
	if err := r.Done(ctx, mac, token, addr); err != nil {
		t.Fatal(err)
	}
	script, err := r.Script(ctx, mac, addr, lab.ScriptName)
	if err != nil || !strings.Contains(string(script), "sanboot") {
		t.Errorf("script after the install:\n%s%v, want local boot", script, err)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	pooled := lab.MAC{0x52, 0x54, 0, 0xff, 0, 1}
	for _, tt := range []struct {
		name string
		mac  lab.MAC
		from string
		want string
	}{
		{"host", mac, "192.168.16.24", "echo bootlab: worker-0 boots disk"},
		{"machine of a pool", pooled, "192.168.16.200", "echo bootlab: 52-54-00-ff-00-01 boots live"},
		{"unknown machine", pooled, "192.168.16.66", "is not in the lab file"},
		{"host without profile", lab.MAC{0x52, 0x54, 0, 0, 2, 5}, "192.168.16.25", "is not in the lab file, or has no profile"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leases[pooled] = netip.MustParseAddr(tt.from)
			got, err := r.Script(t.Context(), tt.mac, netip.MustParseAddr(tt.from), lab.ScriptName)
			if err != nil || !strings.HasPrefix(string(got), "#!ipxe\n") || !strings.Contains(string(got), tt.want) {
				t.Errorf("script:\n%s%v, want %q", got, err, tt.want)
			}
		})
	}
}

// TestPoolMachineWithoutLease: an address of the pool does not make a machine one of the pool: its lease has ended, or was another's.
func TestPoolMachineWithoutLease(t *testing.T) {
	t.Parallel()
	r, pooled := newRig(t), lab.MAC{0x52, 0x54, 0, 0xff, 0, 1}
	for _, held := range []netip.Addr{{}, netip.MustParseAddr("192.168.16.201")} {
		if r.leases[pooled] = held; !held.IsValid() {
			delete(r.leases, pooled)
		}
		if _, err := r.Script(t.Context(), pooled, netip.MustParseAddr("192.168.16.200"), lab.ScriptName); statusOf(err) != http.StatusForbidden {
			t.Errorf("with a lease of %v: %v", held, err)
		}
	}
}

// TestBootLoop: a machine that requests its script again and again gets one that prints this, and an event is recorded.
func TestBootLoop(t *testing.T) {
	t.Parallel()
	for _, name := range []string{lab.ScriptName, lab.GRUBName} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ask := func() string {
				script, err := r.Script(t.Context(), mac, addr, name)
				if err != nil {
					t.Fatal(err)
				}
				return string(script)
			}
			const says = "no system started"
			for range bootloop.MaxScripts {
				if got := ask(); strings.Contains(got, says) {
					t.Fatalf("held already:\n%s", got)
				}
			}
			for range 3 {
				if got := ask(); !strings.Contains(got, says) || !strings.Contains(got, "sleep 60") {
					t.Errorf("the loop goes on with\n%s", got)
				}
			}
			if n, served := r.count(event.ScriptLoop), r.count(event.ScriptServed); n != 3 || served != bootloop.MaxScripts {
				t.Errorf("%d script_loop events, %d script_served events", n, served)
			}
			r.loops.Release(mac)
			if got := ask(); strings.Contains(got, says) {
				t.Errorf("it is still held after Release:\n%s", got)
			}
		})
	}
}

// TestRequestedOnly: requests of scripts that nobody receives begin no boot, count for no loop, and are not on the timeline; the token of
// the installer that runs stays valid.
func TestRequestedOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.token(t)
	before := len(r.events)
	for range 2 * bootloop.MaxScripts {
		for _, name := range []string{lab.ScriptName, lab.GRUBName} {
			if _, err := r.Service.Script(t.Context(), mac, addr, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(r.events); n != before {
		t.Errorf("events %v", r.events[before:])
	}
	if r.loops.ScriptLoops(mac) {
		t.Error("in a loop")
	}
	if _, err := r.Config(t.Context(), mac, token, "worker.cfg", addr); err != nil {
		t.Error(err)
	}
	if err := r.Done(t.Context(), mac, token, addr); err != nil {
		t.Error(err)
	}
}

// TestConfirmedByToken: the acknowledgement of a script may be lost; to use its token shows as well that the machine has it.
func TestConfirmedByToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.Service.Script(t.Context(), mac, addr, lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	decision, err := r.installs.Boot(t.Context(), r.lab.Host("worker-0"), install.Request{NIC: mac})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Config(t.Context(), mac, decision.Token, "worker.cfg", intrud); err == nil || r.count(event.InstallBooting) != 0 {
		t.Errorf("another machine's request with the token: %v, and a boot began", err)
	}
	if _, err := r.Config(t.Context(), mac, decision.Token, "worker.cfg", addr); err != nil || r.count(event.InstallBooting) != 1 {
		t.Errorf("the machine's own: %v", err)
	}
}

// TestNoBootLoopWithoutDHCP: where DHCP is off, no operating system is seen, so that its absence means no boot loop.
func TestNoBootLoopWithoutDHCP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lab.Networks[0].DHCP = lab.DHCPOff
	for range 2 * bootloop.MaxScripts {
		if _, err := r.Script(t.Context(), mac, addr, lab.ScriptName); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.count(event.ScriptLoop); n != 0 {
		t.Errorf("%d script_loop events, want none", n)
	}
}

// TestHostWithoutDHCP: a host that DHCP does not answer, while it answers the network, has any address that another server gives it, unless the
// lab file says one; its system is not seen, so that its absence means no boot loop.
func TestHostWithoutDHCP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.lab.Host("worker-0")
	h.Ignored = true
	if _, err := r.Script(t.Context(), mac, intrud, lab.ScriptName); err == nil {
		t.Error("its script is served to another address than that of the lab file")
	}
	h.IP = netip.Addr{}
	for range 2 * bootloop.MaxScripts {
		if _, err := r.Script(t.Context(), mac, intrud, lab.ScriptName); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.count(event.ScriptLoop); n != 0 {
		t.Errorf("%d script_loop events, want none", n)
	}
}

// TestGRUB: a request for grub.cfg gets GRUB's script of the same boot.
func TestGRUB(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ask := func(mac lab.MAC, from netip.Addr) string {
		t.Helper()
		got, err := r.Script(t.Context(), mac, from, lab.GRUBName)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if got := ask(mac, addr); !strings.Contains(got, "if linux $from/files/k;") {
		t.Errorf("while it is armed:\n%s", got)
	}
	if got := ask(lab.MAC{2}, intrud); !strings.Contains(got, "is not in the lab file") || strings.Contains(got, "#!ipxe") {
		t.Errorf("another machine got:\n%s", got)
	}
	token := r.token(t)
	if err := r.Done(t.Context(), mac, token, addr); err != nil {
		t.Fatal(err)
	}
	if got := ask(mac, addr); !strings.Contains(got, "is installed") || !strings.Contains(got, "chainloader") {
		t.Errorf("once it is installed:\n%s", got)
	}
}

// TestDocuments: the other documents of a boot are for that boot alone, but may be read after its config document.
func TestDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"worker.cfg": "%include {{.DocumentsURL}}/part.ks", "parts/part.ks": "part of {{.Host.Name}}"} {
		write(t, filepath.Join(dir, "files", name), text)
	}
	text := strings.Replace(labFile, "install_to: /dev/vda", "install_to: /dev/vda, documents: [parts/part.ks]", 1)
	l, table := tableOf(t, dir, text)
	r, ctx := rigOf(t, l, table), t.Context()
	token := r.token(t)
	for _, step := range []struct {
		name, document, token string
		from                  netip.Addr
		want                  string // empty: refused
	}{
		{"before", "part.ks", token, addr, "part of worker-0"},
		{"config", "worker.cfg", token, addr, "%include http://192.168.16.1:8080/config/52-54-00-00-02-04/" + token + "/part.ks"},
		{"config again", "worker.cfg", token, addr, ""},
		{"after", "part.ks", token, addr, "part of worker-0"},
		{"after, again", "part.ks", token, addr, "part of worker-0"},
		{"another address", "part.ks", token, intrud, ""},
		{"another token", "part.ks", "guess", addr, ""},
		{"by its path", "parts/part.ks", token, addr, ""},
	} {
		doc, err := r.Config(ctx, mac, step.token, step.document, step.from)
		if err != nil {
			if step.want != "" {
				t.Errorf("%s: %v", step.name, err)
			}
			continue
		}
		if string(doc.Body) != step.want {
			t.Errorf("%s: got %q, want %q", step.name, doc.Body, step.want)
		}
		if err := doc.Read(ctx, 0); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		doc.Release()
	}
}

// TestOneHostFails: a template that fails for one host refuses that host, with the reason, and no other.
func TestOneHostFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.yaml")
	other := "  worker-1: {mac: \"52:54:00:00:02:06\", ip: 192.168.16.26, role: worker, profile: disk}\n"
	write(t, path, labFile+other)
	document := filepath.Join(dir, "files", "worker.cfg")
	write(t, document, "first\nsecret={{.Host.Vars.secret}}")
	l, err := load.Lab(path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	want := document + ":2:15: profiles.disk.config: for host worker-1: {{.Host.Vars.secret}} is not set: want vars: {secret: …} for the host"
	if got := table.Problems().Error(); got != want {
		t.Errorf("problems %s\nwant %s", got, want)
	}
	r := rigOf(t, l, table)
	if _, err := r.Script(t.Context(), mac, addr, lab.ScriptName); err != nil {
		t.Errorf("the host beside it: %v", err)
	}
	_, err = r.Script(t.Context(), lab.MAC{0x52, 0x54, 0, 0, 2, 6}, netip.MustParseAddr("192.168.16.26"), lab.ScriptName)
	var status interface{ HTTPStatus() int }
	if !errors.As(err, &status) || status.HTTPStatus() != 503 || !strings.Contains(err.Error(), "vars: {secret: …}") {
		t.Errorf("error %v, want 503 and the missing value", err)
	}
	if last := r.events[len(r.events)-1]; last.Kind != event.ScriptRefused || !strings.Contains(last.Err, "vars: {secret: …}") {
		t.Errorf("last event %+v, want a refusal with its reason", last)
	}
	if got := r.installs.Status(l.Host("worker-1")).State; got != install.Armed {
		t.Errorf("it is %s, want armed: nothing began", got)
	}
	if err := r.installs.MarkInstalled(t.Context(), l.Host("worker-1")); err != nil {
		t.Fatal(err)
	}
	script, err := r.Script(t.Context(), lab.MAC{0x52, 0x54, 0, 0, 2, 6}, netip.MustParseAddr("192.168.16.26"), lab.ScriptName)
	if err != nil || !strings.Contains(string(script), "its own disk") {
		t.Errorf("installed, it gets %q, %v; want its own disk, whatever its document says", script, err)
	}
}

// TestSeed: virtual machines with cloud-init get all files of its seed that are not empty.
func TestSeed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.yaml")
	write(t, filepath.Join(dir, "files", "worker.yaml"), "#cloud-config\nhostname: {{.Host.Name}}\n")
	write(t, filepath.Join(dir, "files", "network-config"), "version: 2\n")
	write(t, path, strings.NewReplacer(`kernel: k, initrd: [i], config: "{{.Host.Role}}.cfg", install_to: /dev/vda`,
		`os: cloud-init, image: "{{.Host.Role}}.qcow2", config: "{{.Host.Role}}.yaml", documents: [network-config]`).Replace(labFile))
	l, err := load.Lab(path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := table.ImageDocuments("worker-0")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range docs {
		got[d.Name] = string(d.Body)
	}
	want := map[string]string{
		"user-data": "#cloud-config\nhostname: worker-0\n", "network-config": "version: 2\n",
		"meta-data": "instance-id: worker-0-52-54-00-00-02-04\nlocal-hostname: worker-0\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestImage: virtual machines that boot an image get the document from their hypervisor.
func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.yaml")
	write(t, filepath.Join(dir, "files", "worker.ign"), `{"ignition":{"version":"3.4.0"},"host":"{{.Host.FQDN}}"}`)
	write(t, path, strings.NewReplacer(`kernel: k, initrd: [i], config: "{{.Host.Role}}.cfg", install_to: /dev/vda`,
		`os: coreos, image: "{{.Host.Role}}.qcow2", config: "{{.Host.Role}}.ign"`).Replace(labFile))
	l, err := load.Lab(path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	if image, err := table.Image("worker-0"); err != nil || image != "worker.qcow2" {
		t.Errorf("image %q, %v", image, err)
	}
	if docs, err := table.ImageDocuments("worker-0"); err != nil || len(docs) != 1 || string(docs[0].Body) != `{"ignition":{"version":"3.4.0"},"host":"worker-0.lab.test"}` {
		t.Errorf("documents %q, %v", docs, err)
	}
	for _, name := range []string{"switch", "gone"} {
		if _, err := table.Image(name); err == nil {
			t.Errorf("%s has an image", name)
		}
	}
}
