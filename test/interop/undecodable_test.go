package interop

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/logfile"
)

// TestUndecodableState: records of the state that are whole, and that bootlab cannot decode, do not end the start. Each is listed as lost,
// a host whose state is among them is unknown, and all else goes on.
func TestUndecodableState(t *testing.T) {
	t.Parallel()
	l := newLossLab(t, "10.110.6", nil)
	pooled := l.daemon.machine(t, "52:54:00:00:ff:10")
	addr := pooled.lease(t)
	broken := []string{"lease/" + addr, "lease/nowhere", "install/w1", "drain/api/nowhere", "serial/lab.test.", "lease-clock", "dnsupdate/lab.test.|x.lab.test.|TXT", "vm/w1", "vmboot/w1",
		"address/nowhere", "address/10.110.6.77", "cluster/prod"}
	l.restart(func() {
		s, damage, err := logfile.Open(filepath.Join(l.dir, "state/state.db"))
		if err != nil || len(damage) > 0 {
			t.Fatal(damage, err)
		}
		for _, key := range broken {
			if err := s.Commit(t.Context(), store.Put(key, []byte("\x7fno record"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	l.until("all losses are logged", func() bool {
		log := l.log.String()
		for _, key := range broken {
			kind, rest, _ := strings.Cut(key, "/")
			if about, _, _ := strings.Cut(rest, "/"); !strings.Contains(log, strings.TrimSpace(kind+" "+about)) {
				return false
			}
		}
		return strings.Contains(log, "state store is degraded")
	})
	for range 2 {
		if got := l.host("w1").Install; got != "unknown" || l.installs(1) {
			t.Errorf("w1 is %s, or its next boot installs it", got)
		}
		if got := l.host("w0").Install; got != "installed" || l.installs(0) {
			t.Errorf("w0 is %s, or its next boot installs it", got)
		}
		if !l.installs(2) {
			t.Error("w2 was armed, and is not installed")
		}
		if s := l.status(); !strings.HasSuffix(s.StateLost, "Hosts whose install state is unknown: w1") {
			t.Errorf("status: %q", s.StateLost)
		}
		if body := l.page("readyz"); !strings.Contains(body, "stored changes were lost") {
			t.Errorf("readyz:\n%s", body)
		}
		l.restart(nil)
	}
	if again := pooled.lease(t); again == "" {
		t.Error("the machine whose lease was lost gets no address")
	}
	if out, err := l.bootlab("state", "accept-new", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := l.host("w1").Install; got != "armed" {
		t.Errorf("once the loss is accepted, w1 is %s", got)
	}
	l.restart(nil)
	if body := l.page("readyz"); strings.Contains(body, "lost") || strings.Contains(l.log.String(), "state_lost") {
		t.Errorf("after it was accepted:\n%s", body)
	}
}

// TestNewerState: a state of a later format is refused in one clear sentence, and left as it is.
func TestNewerState(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.110.7")
	d := start(t, l)
	d.kill()
	path := filepath.Join(l.dir, "state/state.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 4096} { // see package logfile: 8 bytes, the version, …, a sum
		binary.LittleEndian.PutUint32(b[at+8:], 2)
		binary.LittleEndian.PutUint32(b[at+32:], crc32.Checksum(b[at:at+32], crc32.MakeTable(crc32.Castagnoli)))
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d.log = &output{}
	d.launch()
	code := d.exit(patience)
	var last string
	for line := range strings.Lines(d.log.String()) {
		last = line
	}
	want := "bootlab: open state file " + path + ": it has format version 2 and this bootlab reads version 1: use the bootlab that wrote it, or a newer one\n"
	if code != 1 || last != want {
		t.Errorf("exit code %d, and the last line is\n%swant\n%s", code, last, want)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
		t.Errorf("the file was changed: %v", err)
	}
}
