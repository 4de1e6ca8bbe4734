package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/host/pause"
)

// TestFolderReplaced: the lab is watched also where its folder was moved away and another took its name, or where a link on
// the way to it leads elsewhere now.
func TestFolderReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(t *testing.T, dir string){
		"moved away": func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "now"), filepath.Join(dir, "old")))
			must(t, os.Mkdir(filepath.Join(dir, "now"), 0o755))
		},
		"link to the folder": func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "now"), filepath.Join(dir, "v1")))
			must(t, os.Mkdir(filepath.Join(dir, "v2"), 0o755))
			must(t, os.Symlink("v2", filepath.Join(dir, "now")))
		},
		"link to the file": func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "v2"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "v2", "lab.yaml"), nil, 0o644))
			must(t, os.Symlink("../v2/lab.yaml", filepath.Join(dir, "now", "link")))
			must(t, os.Rename(filepath.Join(dir, "now", "link"), filepath.Join(dir, "now", "lab.yaml")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "now", "lab.yaml")
			must(t, os.Mkdir(filepath.Dir(path), 0o755))
			must(t, os.WriteFile(path, nil, 0o644))
			reloads := watched(t, path)
			replace(t, dir)
			within(t, "the folder was replaced", reloads)
			must(t, os.WriteFile(path, nil, 0o644))
			within(t, "a file of the new folder was written", reloads)
		})
	}
}

// TestLinkedLab: where the lab file is a link, a change of each link on the way to its file and of the file itself is noticed, also while
// other files of the folders are written all the time.
func TestLinkedLab(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	link := func(target, name string) {
		t.Helper()
		must(t, os.Symlink(target, at("new")))
		must(t, os.Rename(at("new"), at(name)))
	}
	for _, name := range []string{"v1", "v2"} {
		must(t, os.Mkdir(at(name), 0o755))
		must(t, os.WriteFile(at(name+"/lab.yaml"), nil, 0o644))
	}
	link("v1", "..data")
	link("..data/lab.yaml", "lab.yaml") // as Kubernetes mounts a ConfigMap
	reloads := watched(t, at("lab.yaml"))
	ctx, cancel := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	noise.Go(func() {
		for pause.For(ctx, settle/20) == nil {
			for _, name := range []string{"noise.log", "v1/noise.log", "v2/noise.log"} {
				_ = os.WriteFile(at(name), []byte("noise"), 0o644)
			}
		}
	})
	defer noise.Wait()
	defer cancel()
	must(t, os.WriteFile(at("other.yaml"), nil, 0o644))
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the file that the links lead to was written", func() { must(t, os.WriteFile(at("v1/lab.yaml"), []byte("a"), 0o644)) }},
		{"a link on the way to it was replaced", func() { link("v2", "..data") }},
		{"the lab file was replaced by a link to one beside it", func() { link("other.yaml", "lab.yaml") }},
		{"the file beside it was written", func() { must(t, os.WriteFile(at("other.yaml"), []byte("b"), 0o644)) }},
	} {
		step.do()
		within(t, step.what, reloads)
		for settled := false; !settled; { // the folders are others now, which a look finds, too
			select {
			case <-reloads:
			case <-time.After(2 * lookEvery):
				settled = true
			}
		}
	}
}

// TestHalfWrittenLab: a file that somebody writes is read when it is closed, whatever else of the lab is written meanwhile. One that
// replaces it by its name alone is read at once.
func TestHalfWrittenLab(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, zone := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "a.zone")
	must(t, os.WriteFile(path, []byte("whole"), 0o644))
	must(t, os.WriteFile(zone, nil, 0o644))
	reloads := watched(t, path, zone)
	quiet := func(what string) {
		t.Helper()
		select {
		case <-reloads:
			t.Errorf("reloaded though %s", what)
		case <-time.After(5 * settle): // less than the bound for a file that stays open
		}
	}
	for _, step := range []struct {
		what string
		open func() (*os.File, error)
	}{
		{"the lab file is written again", func() (*os.File, error) { return os.Create(path) }},
		{"it is appended to", func() (*os.File, error) { return os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) }},
		{"it is a new file", func() (*os.File, error) {
			must(t, os.Remove(path))
			return os.Create(path)
		}},
	} {
		f, err := step.open()
		must(t, err)
		_, err = f.WriteString("half")
		must(t, err)
		quiet(step.what)
		must(t, os.WriteFile(zone, []byte("another"), 0o644))
		quiet(step.what + ", and a zone file is whole")
		_, err = f.WriteString("half")
		must(t, err)
		must(t, f.Close())
		within(t, step.what+", and was closed", reloads)
	}
	must(t, os.WriteFile(path+".new", []byte("whole"), 0o644))
	must(t, os.Rename(path+".new", path))
	within(t, "the lab file was replaced", reloads)
	must(t, os.Remove(path))
	must(t, os.Link(zone, path))
	within(t, "it was replaced by a link", reloads)
}

// TestLabFileStaysOpen: a program that never closes the file that it writes holds up the reload for a while only.
func TestLabFileStaysOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lab.yaml")
	must(t, os.WriteFile(path, nil, 0o644))
	reloads := watched(t, path)
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("whole")
	must(t, err)
	select {
	case <-reloads:
	case <-time.After(time.Minute):
		t.Fatal("nothing is reloaded")
	}
}

// TestZoneFileChanges: a zone file, also in a folder of its own that comes later, is watched as the lab file is.
func TestZoneFileChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, zone := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "zones", "a.zone")
	must(t, os.WriteFile(path, nil, 0o644))
	reloads := watched(t, path, zone)
	must(t, os.Mkdir(filepath.Dir(zone), 0o755))
	within(t, "the folder of a zone file was made", reloads)
	must(t, os.WriteFile(zone, nil, 0o644))
	within(t, "a zone file was written", reloads)
	must(t, os.WriteFile(zone+"~", nil, 0o644)) // another file is not the lab's
	must(t, os.Rename(zone, zone+".old"))
	within(t, "a zone file was removed", reloads)
}

// watched watches path and other files, and sends for each reload.
func watched(t *testing.T, path string, others ...string) <-chan string {
	t.Helper()
	w, err := New(path, func() []string { return others }, slog.New(slog.DiscardHandler))
	must(t, err)
	reloads, ended := make(chan string), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = w.Run(ctx, func(why string) {
			select {
			case reloads <- why:
			case <-ctx.Done():
			}
		}, func() bool { return false }, nil)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return reloads
}

func within(t *testing.T, what string, reloads <-chan string) {
	t.Helper()
	select {
	case <-reloads:
	case <-time.After(time.Minute):
		t.Fatalf("%s, and nothing is reloaded", what)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestResolvConfChanges: the target of a link is watched, as resolv.conf's is replaced by resolvers of the system.
func TestResolvConfChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link, target := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "etc", "resolv.conf"), filepath.Join(dir, "run", "stub.conf")
	for _, folder := range []string{filepath.Dir(link), filepath.Dir(target)} {
		must(t, os.Mkdir(folder, 0o700))
	}
	must(t, os.WriteFile(path, []byte("a"), 0o600))
	must(t, os.WriteFile(target, []byte("nameserver 192.0.2.1"), 0o600))
	must(t, os.Symlink(target, link))
	reloads := watched(t, path, link)
	must(t, os.WriteFile(target, []byte("nameserver 192.0.2.2"), 0o600))
	within(t, "the file that the link points to was written", reloads)
	must(t, os.WriteFile(target+".new", []byte("nameserver 192.0.2.3"), 0o600))
	must(t, os.Rename(target+".new", target))
	within(t, "it was replaced", reloads)
}

// TestOtherFilesOfTheFolder: a file beside the lab's that is written all the time costs a comparison of names for each write, no calls of
// the kernel, which would allocate.
func TestOtherFilesOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	path, zone := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "a.zone")
	must(t, os.WriteFile(path, nil, 0o644))
	must(t, os.WriteFile(zone, nil, 0o644))
	others := []string{zone, filepath.Join(dir, "missing.zone")}
	w, err := New(path, func() []string { return others }, slog.New(slog.DiscardHandler))
	must(t, err)
	defer w.close()
	for name, want := range map[string]bool{"lab.yaml": true, "a.zone": true, "noise.log": false} {
		name = filepath.Join(dir, name)
		if w.changed(name) != want {
			t.Errorf("%s is of the lab: %t", name, !want)
		}
		if n := testing.AllocsPerRun(100, func() { w.changed(name) }); n != 0 {
			t.Errorf("a write of %s costs %v allocations", name, n)
		}
	}
}
