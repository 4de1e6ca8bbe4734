package boot_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// TestAnswer replays the Proxmox installer: it gets the URL by DHCP and posts its NICs.
func TestAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "answer.toml"), "root-password = \"{{.Host.Vars.secret}}\"")
	write(t, filepath.Join(dir, "files", "worker.cfg"), "not for a POST")
	text := strings.NewReplacer("live: {kernel: k, initrd: [i]}", "live: {os: proxmox, kernel: k, initrd: [i], image: pve.iso, config: answer.toml}",
		"profile: disk", "profile: live").Replace(labFile) +
		"  other: {mac: \"52:54:00:00:02:07\", ip: 192.168.16.27, role: worker, profile: disk}\n"
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(text), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := lab.Option{Code: 250, Data: []byte("http://192.168.16.1:8080/answer")}
	for name, options := range map[string][]lab.Option{"host": l.Host("worker-0").Options, "pool": l.Networks[0].Pools[0].Options} {
		if len(options) != 1 || options[0].Code != want.Code || string(options[0].Data) != string(want.Data) {
			t.Errorf("options of the %s: %v, want %v", name, options, want)
		}
	}
	if l.Host("switch").Options != nil {
		t.Errorf("a host that installs nothing gets the options %v", l.Host("switch").Options)
	}
	table, err := boot.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	r := rigOf(t, l, table)
	lo, ctx := lab.MAC{}, t.Context()
	ask := func(from netip.Addr, macs ...lab.MAC) error {
		a, err := r.Answer(ctx, macs, from)
		if err == nil {
			if string(a.Body) != `root-password = "s3"` || a.ContentType != "application/toml" {
				t.Errorf("answer %s %s", a.ContentType, a.Body)
			}
			err = a.Read(ctx, 0)
			a.Release()
			if last := r.events[len(r.events)-2]; last.Kind != event.ConfigServed || last.MAC != mac || last.Detail != "answer.toml" {
				t.Errorf("event %+v", last)
			}
		}
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		var status interface{ HTTPStatus() int }
		if !errors.As(err, &status) || status.HTTPStatus() != 403 {
			t.Errorf("%s: %v, want 403", what, err)
		}
		if last := r.events[len(r.events)-1]; last.Kind != event.ConfigRefused || last.Err == "" {
			t.Errorf("%s: last event %+v, want a refusal with its reason", what, last)
		}
	}
	refused("before it boots", ask(addr, lo, mac))
	if _, err := r.Script(ctx, mac, addr, lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	refused("another address", ask(intrud, mac))
	refused("no NIC of ours", ask(addr, lo))
	refused("no NIC", ask(addr))
	other, at := lab.MAC{0x52, 0x54, 0, 0, 2, 7}, netip.MustParseAddr("192.168.16.27")
	if _, err := r.Script(ctx, other, at, lab.ScriptName); err != nil {
		t.Fatal(err)
	}
	refused("an installer that gets a token", ask(at, other))
	if err := ask(addr, lo, mac); err != nil {
		t.Error(err)
	}
	refused("a second reader", ask(addr, mac))
}
