package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/faultfs"
)

// damaged returns the path of a closed store with keys 0 to 9, of which the record of one has wrong bytes.
func damaged(t *testing.T, lost int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, openFile)
	var at int64
	for i := range 10 {
		if i == lost {
			at = s.log.end
		}
		put(t, s, fmt.Sprint("key/", i), fmt.Sprint("value of ", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, at, "wrong")
	return path
}

func overwrite(t *testing.T, path string, at int64, with string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(with), at); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func open(t *testing.T, path string) (*Store, []Loss) {
	t.Helper()
	s, damage, err := openWith(path, testConfig(small, openFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, damage
}

// TestMarkLost: a damaged file is renamed, a new one has what is readable, and knows over restarts and compactions what is in doubt,
// until it is written again or the losses are accepted.
func TestMarkLost(t *testing.T) {
	t.Parallel()
	path := damaged(t, 5)
	s, damage := open(t, path)
	if len(damage) != 1 || len(s.Losses()) != 1 {
		t.Fatalf("found %v, lost %v", damage, s.Losses())
	}
	kept, _ := filepath.Glob(path + ".damaged-*")
	if len(kept) != 1 || s.Losses()[0].Copy != kept[0] {
		t.Fatalf("kept %q, said %v", kept, s.Losses())
	}
	if b, err := os.ReadFile(kept[0]); err != nil || !strings.Contains(string(b), "wrong") {
		t.Errorf("the damaged file is not what was renamed: %v", err)
	}
	doubts := map[string]bool{"key/1": true, "key/4": true, "key/5": true, "key/6": false, "key/9": false, "other": true}
	check := func(when string) {
		t.Helper()
		for key, want := range doubts {
			if store.Doubtful(s, key) != want {
				t.Errorf("%s: doubt about %s is %v, want %v", when, key, !want, want)
			}
		}
	}
	check("at first")
	put(t, s, "key/1", "again")
	doubts["key/1"] = false
	check("written again")
	compactNow(t, s)
	check("after a compaction")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, damage = open(t, path)
	if len(damage) > 0 || len(s.Losses()) != 1 || s.Losses()[0].Found.IsZero() {
		t.Errorf("at the next start: found %v, lost %v", damage, s.Losses())
	}
	check("after a restart")
	if err := s.AcceptLosses(t.Context()); err != nil {
		t.Fatal(err)
	}
	clear(doubts)
	doubts["key/5"], doubts["other"] = false, false
	check("accepted")
	if _, err := s.Get(t.Context(), "key/4"); err != nil || len(s.Losses()) > 0 {
		t.Errorf("lost %v, %v", s.Losses(), err)
	}
}

// TestUndecodable: whole records that their owners cannot decode are lost like damaged ones. If the disk does not take that at once,
// they are in doubt all the same, and a compaction that runs meanwhile does not bring them back.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, openFile)
	for i := range 10 {
		put(t, s, fmt.Sprint("key/", i), fmt.Sprint("value of ", i))
	}
	for _, key := range []string{"key/3", "key/5"} { // two owners, in one second
		var u store.Undecodable
		u.Add(key, fmt.Errorf("%s: version 9", key))
		if err := u.MarkLost(s); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		var lost []string
		for _, l := range s.Losses() {
			lost = append(lost, l.Keys...)
			if b, err := os.ReadFile(l.Copy); err != nil || !strings.Contains(string(b), "value of "+l.Keys[0][4:]) {
				t.Errorf("%s: the copy of %s has it not: %v", when, l.Keys, err)
			}
		}
		if want := "[key/3 key/5]"; fmt.Sprint(lost) != want {
			t.Errorf("%s: lost %v, want %s", when, s.Losses(), want)
		}
		for i := range 10 {
			key := fmt.Sprint("key/", i)
			_, err := s.Get(t.Context(), key)
			if bad := i == 3 || i == 5; store.Doubtful(s, key) != bad || (err != nil) != bad {
				t.Errorf("%s: %s: doubt is %v, %v", when, key, store.Doubtful(s, key), err)
			}
		}
	}
	check("at once")
	put(t, s, "key/10", "after")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, damage := open(t, path)
	if len(damage) > 0 {
		t.Errorf("the next start finds %v", damage)
	}
	check("after a restart")
	compactNow(t, s)
	check("after a compaction")
	put(t, s, "key/3", "again")
	if s.Doubtful("key/3") {
		t.Error("in doubt after it was written")
	}
}

// TestUndecodableFullDisk: with a disk that takes no new file, the records are in doubt and commits fail; all is well once it does.
func TestUndecodableFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var full atomic.Bool
	s := begin(t, path, never, func(path string, flag int) (disk, error) {
		if full.Load() {
			return nil, syscall.ENOSPC
		}
		return openFile(path, flag)
	})
	put(t, s, "good", "value")
	put(t, s, "bad", "value")
	full.Store(true)
	var u store.Undecodable
	u.Add("bad", errors.New("version 9"))
	if err := u.MarkLost(s); err != nil {
		t.Fatal(err)
	}
	if !s.Doubtful("bad") || s.Doubtful("good") || len(s.Losses()) != 1 {
		t.Errorf("lost %v", s.Losses())
	}
	if err := s.Commit(t.Context(), store.Put("bad", nil)); err == nil || s.DiskStatus().Err == nil {
		t.Errorf("a commit succeeds: %v, %+v", err, s.DiskStatus())
	}
	full.Store(false)
	for s.Commit(t.Context(), store.Put("other", nil)) != nil {
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Get(t.Context(), "bad"); !errors.Is(err, store.ErrNotFound) || !s.Doubtful("bad") || len(s.Losses()) != 1 || s.Losses()[0].Copy == "" {
		t.Errorf("%v, lost %v", err, s.Losses())
	}
}

// TestNothingReadable: a file that is empty or no store at all is renamed, and every key is in doubt.
func TestNothingReadable(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "not a store"} {
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := open(t, path)
		if len(s.Losses()) != 1 || !s.Doubtful("a") {
			t.Errorf("%q: lost %v", content, s.Losses())
		}
		put(t, s, "a", "1")
		if s.Doubtful("a") || !s.Doubtful("b") {
			t.Errorf("%q: a is in doubt, or b is not", content)
		}
	}
}

// TestNoBytesAtAnOffset: what is missing at the end of a file has no bytes.
func TestNoBytesAtAnOffset(t *testing.T) {
	t.Parallel()
	for l, want := range map[string]Loss{
		"at offset 8192: no record is readable: everything is lost": {Kind: Lost, Offset: 8192, Cause: "no record is readable: everything is lost"},
		"40 bytes at offset 9000 cannot be read: 1 change is lost":  {Kind: Lost, Offset: 9000, Bytes: 40, Transactions: 1},
	} {
		if got := want.String(); got != l {
			t.Errorf("%q, want %q", got, l)
		}
	}
}

// TestManyLosses: a file that is damaged in many places has a bounded list of losses.
func TestManyLosses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, openFile)
	var places []int64
	for i := range 200 {
		if i%2 == 1 {
			places = append(places, s.log.end)
		}
		put(t, s, fmt.Sprint("key/", i), fmt.Sprint("value of ", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range places {
		overwrite(t, path, at, "wrong")
	}
	s, _ = open(t, path)
	var n uint64
	for _, l := range s.Losses() {
		n += l.Transactions
		if strings.Contains(l.String(), "earlier loss") {
			t.Errorf("a loss whose description is whole: %s", l)
		}
	}
	if len(s.Losses()) != maxLosses || n != uint64(len(places)) || len(content(t, s, "key/")) != 100 {
		t.Errorf("%d losses of %d transactions, want %d of %d", len(s.Losses()), n, maxLosses, len(places))
	}
}

// TestCutWhileDown: a file that was cut after a kill is noticed, if the mark was younger than the cut.
func TestCutWhileDown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := begin(t, path, never, openFile)
	put(t, s, "a", "1")
	at := s.log.end
	put(t, s, "b", "1")
	s.writing <- struct{}{}
	s.tick()
	<-s.writing
	killed := crashed(t, s)
	for _, size := range []int64{at, at + 3, s.log.end + 1} {
		if err := os.Truncate(killed, size); err != nil {
			t.Fatal(err)
		}
		again, _, err := openWith(killed, testConfig(never, openFile))
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Losses()) == 0 || !again.Doubtful("b") {
			t.Errorf("cut at %d: lost %v", size, again.Losses())
		}
		wantA := content(t, again, "a")
		if wantA["a"] != "1" {
			t.Errorf("cut at %d: %v", size, wantA)
		}
		again.Close()
		killed = crashed(t, s)
	}
}

// TestDamagedOnFullDisk: a damaged file that cannot be copied to a new one is read, and copied once there is space.
func TestDamagedOnFullDisk(t *testing.T) {
	t.Parallel()
	f := &faults{open: true}
	path := damaged(t, 5)
	s, _, err := openWith(path, testConfig(small, f.onlyNew))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if got := content(t, s, "key/"); len(got) != 9 || len(s.Losses()) != 1 || !s.Doubtful("key/5") || s.Doubtful("key/6") {
		t.Errorf("%d keys, lost %v", len(got), s.Losses())
	}
	if err := s.Commit(t.Context(), store.Put("a", nil)); err == nil {
		t.Error("a damaged file was written")
	}
	f.set(func(f *faults) { f.open = false })
	putOnceHealed(t, s, "a", "1")
	if kept, _ := filepath.Glob(path + ".damaged-*"); len(kept) != 1 || !s.Doubtful("key/5") || s.Doubtful("key/6") {
		t.Errorf("kept %q", kept)
	}
}

// onlyNew lets new files fail, and opens others.
func (f *faults) onlyNew(path string, flag int) (disk, error) {
	if flag == 0 {
		return openFile(path, flag)
	}
	return f.disk(path, flag)
}

// TestReadOnlyAtStart: a store on a file system that is read-only opens, and takes records once it is writable.
func TestReadOnlyAtStart(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, "size=2m")
	path := filepath.Join(dir, "store.db")
	s := begin(t, path, never, openFile)
	put(t, s, "a", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remount(t, dir, syscall.MS_RDONLY)
	s = begin(t, path, never, openFile)
	wantContent(t, s, map[string]string{"a": "1"})
	if err := s.Commit(t.Context(), store.Put("b", nil)); err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("commit: %v", err)
	}
	remount(t, dir, 0)
	putOnceHealed(t, s, "b", "2")
	wantContent(t, s, map[string]string{"a": "1", "b": "2"})
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableSectors: of a file with sectors that the disk cannot read, the others are read.
func TestUnreadableSectors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := faultfs.Mount(t, dir)
	path := filepath.Join(dir, "store.db")
	s := begin(t, path, never, openFile)
	for i := range 100 {
		put(t, s, fmt.Sprintf("key/%02d", i), strings.Repeat("v", 1000))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const bad = 10 * 4096
	disk.Fail(func(op faultfs.Op, at int64, size int) syscall.Errno {
		if op == faultfs.Read && at < bad+4096 && bad < at+int64(size) {
			return syscall.EIO
		}
		return 0
	})
	s, _ = open(t, path)
	disk.Fail(nil) // they are not of the new file
	got, losses := content(t, s, "key/"), s.Losses()
	if len(got) < 85 || len(got) == 100 || len(losses) == 0 || !store.Doubtful(s, "key/00") || store.Doubtful(s, "key/99") {
		t.Errorf("%d keys, lost %v", len(got), losses)
	}
}
