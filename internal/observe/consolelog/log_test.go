package consolelog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/observe/consolelog"
	"github.com/bootlab/bootlab/test/support/faultfs"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open runs a Log until the test ends or stop is called.
func open(t *testing.T, cfg consolelog.Config, found func(consolelog.Finding)) (l *consolelog.Log, stop func()) {
	t.Helper()
	l, err := consolelog.Open(cfg, consolelog.Deps{Log: slog.New(slog.DiscardHandler), Now: time.Now, Registerer: prometheus.NewRegistry(), Found: found})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			check(t, <-done)
		}
	}
	t.Cleanup(stop)
	return l, stop
}

// texts returns what is kept of each boot of a host.
func texts(t *testing.T, l *consolelog.Log, host string) (all []string) {
	t.Helper()
	l.Flush(t.Context())
	for _, b := range l.Boots(host) {
		text, err := l.Read(host, b.Started)
		check(t, err)
		all = append(all, string(text))
	}
	return all
}

func TestBootsOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	l, stop := open(t, consolelog.Config{Dir: dir}, nil)
	l.Write("early", []byte("before its start was seen"))
	l.Begin("master-0", "domain 7")
	l.Write("master-0", []byte("firm"))
	l.Write("master-0", []byte("ware"))
	l.Begin("master-0", "domain 7") // attached anew
	l.Write("master-0", []byte(", kernel"))
	l.Begin("master-0", "") // reset
	l.Begin("master-0", "")
	l.Write("master-0", []byte("again"))
	stop()
	l, _ = open(t, consolelog.Config{Dir: dir}, nil)
	l.Begin("master-0", "domain 7")
	l.Write("master-0", []byte(" and on"))
	l.Begin("master-0", "domain 8")
	l.Write("master-0", []byte("third"))
	if diff := cmp.Diff([]string{"firmware, kernel", "again and on", "third"}, texts(t, l, "master-0")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"before its start was seen"}, texts(t, l, "early")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	info, err := os.Stat(dir)
	check(t, err)
	if info.Mode().Perm()&0o077 != 0 && info.Mode().Perm() != 0o755 { // t.TempDir made it
		t.Errorf("folder has mode %v", info.Mode())
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.head"))
	check(t, err)
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v), want 0600", f, info.Mode(), err)
		}
	}
}

// TestSilentBoot: a machine that wrote nothing, as one that was reverted to a snapshot, has no boot of its own.
func TestSilentBoot(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, consolelog.Config{Dir: dir, Boots: 3}, nil)
	for i := range 6 {
		l.Begin("h", fmt.Sprint("run ", i))
		if i%3 == 0 {
			l.Write("h", fmt.Appendf(nil, "boot %d\n", i))
		}
	}
	if diff := cmp.Diff([]string{"boot 0\n", "boot 3\n"}, texts(t, l, "h")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	l.Write("h", []byte("boot 5\n"))
	if diff := cmp.Diff([]string{"boot 0\n", "boot 3\n", "boot 5\n"}, texts(t, l, "h")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBootsAreBounded(t *testing.T) {
	dir := t.TempDir()
	l, stop := open(t, consolelog.Config{Dir: dir, Boots: 2, Bytes: 800, Total: 2000}, nil)
	for _, name := range []string{"a", "b", "c"} {
		l.Begin("h", name)
		l.Write("h", []byte(name+" begins\n"))
		for range 100 {
			l.Write("h", []byte(strings.Repeat(".", 99)+"\n"))
		}
		l.Write("h", []byte(name+" ends\n"))
	}
	all := texts(t, l, "h")
	if len(all) != 2 {
		t.Fatalf("%d boots are kept, want 2", len(all))
	}
	for i, name := range []string{"b", "c"} {
		if !strings.HasPrefix(all[i], name+" begins\n") || !strings.HasSuffix(all[i], name+" ends\n") || len(all[i]) > 900 {
			t.Errorf("boot %d has %d bytes, begins with %q and ends with %q", i, len(all[i]), all[i][:9], all[i][len(all[i])-9:])
		}
		b := l.Boots("h")[i]
		if want := int64(10016) - b.Bytes; b.Dropped != want || !strings.Contains(all[i], "bytes are not kept") {
			t.Errorf("boot %d: dropped %d, want %d", i, b.Dropped, want)
		}
	}
	dropped := l.Boots("h")[1].Dropped
	stop()
	l, _ = open(t, consolelog.Config{Dir: dir, Boots: 2, Bytes: 800, Total: 2000}, nil)
	if got := l.Boots("h"); len(got) != 2 || got[1].Dropped != dropped {
		t.Errorf("after a restart: %+v, want %d bytes dropped", got, dropped)
	}
	for _, host := range []string{"i", "j"} { // together they have more than Total
		for _, key := range []string{"1", "2"} {
			l.Begin(host, key)
			l.Write(host, bytes.Repeat([]byte("x"), 700))
		}
	}
	l.Flush(t.Context())
	var total int64
	for _, host := range []string{"h", "i", "j"} {
		boots := l.Boots(host)
		if len(boots) == 0 {
			t.Errorf("no boot of %s is kept", host)
		}
		for _, b := range boots {
			total += b.Bytes
		}
	}
	if total > 2200 { // the last of each host stays
		t.Errorf("%d bytes are kept, want about 2000", total)
	}
}

func TestFindings(t *testing.T) {
	for _, c := range []struct {
		output string
		want   consolelog.Meaning
	}{
		{"[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\r\n", consolelog.Panic},
		{"No bootable device.\r\n", consolelog.NoBootDevice},
		{"\x1b[2J\x1b[01;01HBdsDxe: No bootable option or device was found.\r\n", consolelog.NoBootDevice},
		{"You are in \x1b[1memergency\x1b[0m mode. After logging in, type \"journalctl -xb\"\n", consolelog.Emergency},
		{"Press Enter for emergency shell or wait 5 minutes for reboot.\r", consolelog.Emergency},
		{"ALERT!  UUID=7 does not exist.  Dropping to a shell!\n", consolelog.Emergency},
		{"Reached target Emergency Mode.\n", consolelog.Nothing},
		{"No bootable device.", consolelog.Nothing}, // the line has not ended
	} {
		var found []consolelog.Finding
		l, stop := open(t, consolelog.Config{Dir: t.TempDir()}, func(f consolelog.Finding) { found = append(found, f) })
		l.Begin("h", "1")
		for _, b := range []byte(c.output + c.output) { // once for each boot
			l.Write("h", []byte{b})
		}
		l.Flush(t.Context())
		stop()
		if want := c.want != consolelog.Nothing; len(found) != map[bool]int{true: 1}[want] || want && (found[0].Meaning != c.want || found[0].Host != "h" || strings.Contains(found[0].Line, "\x1b")) {
			t.Errorf("%q: found %+v, want %v", c.output, found, c.want)
		}
	}
}

func TestPlain(t *testing.T) {
	got := consolelog.Plain([]byte("\x1b[0;32mOK\x1b[0m started\r\n\x1b]0;title\x07log\b\bin:\xff \x1b(Bend"))
	if want := "OK started\nlin:� end\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzScan asserts that lines are bounded texts without control sequences, and do not depend on how the output is cut.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{"\x1b[2J\x1b[01;01HBdsDxe: x\r\n", "\x1b]0;t\x07a\n", "\x1bP+q\x1b\\b\n", "a\bb\xff\n", strings.Repeat("x", 600) + "\n"} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, output []byte, cut int) {
		var whole, parts []string
		var s, p consolelog.Scanner
		s.Scan(output, func(l string) { whole = append(whole, l) })
		cut = max(0, min(cut, len(output)))
		p.Scan(output[:cut], func(l string) { parts = append(parts, l) })
		p.Scan(output[cut:], func(l string) { parts = append(parts, l) })
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Errorf("cut at %d (-whole +parts)\n%s", cut, diff)
		}
		for _, l := range whole {
			if l == "" || len(l) > 3*512 || l != strings.ToValidUTF8(l, "?") || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				t.Errorf("line %q", l)
			}
		}
		if plain := consolelog.Plain(output); bytes.IndexByte(plain, 0x1b) >= 0 {
			t.Errorf("plain text %q has control sequences", plain)
		}
	})
}

// TestBootsOnAHungDisk: while output waits for the disk, the list of boots is there.
func TestBootsOnAHungDisk(t *testing.T) {
	dir := t.TempDir()
	disk := faultfs.Mount(t, dir)
	l, _ := open(t, consolelog.Config{Dir: dir}, nil)
	l.Begin("node", "1")
	l.Write("node", []byte("before"))
	if got := texts(t, l, "node"); len(got) != 1 {
		t.Fatalf("boots: %q", got)
	}
	hung, waits := make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { disk.Fail(nil); close(hung) })
	t.Cleanup(release) // before the log is closed
	disk.Fail(func(faultfs.Op, int64, int) syscall.Errno {
		select {
		case waits <- struct{}{}:
		default:
		}
		<-hung
		return 0
	})
	l.Write("node", []byte("meanwhile"))
	<-waits
	listed := make(chan []consolelog.Boot, 1)
	go func() { listed <- l.Boots("node") }()
	select {
	case boots := <-listed:
		if len(boots) != 1 || boots[0].Bytes != int64(len("before")) {
			t.Errorf("boots: %+v", boots)
		}
	case <-time.After(time.Minute):
		t.Error("who lists the boots waits for the disk")
	}
	release()
	if got := texts(t, l, "node"); len(got) != 1 || got[0] != "beforemeanwhile" {
		t.Errorf("afterwards: %q", got)
	}
}
