package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	w, err := newWatcher(path, func() []string { return others }, slog.New(slog.DiscardHandler))
	must(t, err)
	reloads, ended := make(chan string), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = w.run(ctx, func(why string) {
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
	case <-time.After(20 * time.Second):
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
	reloads := watched(t, path, withTargets([]string{link})...)
	must(t, os.WriteFile(target, []byte("nameserver 192.0.2.2"), 0o600))
	within(t, "the file that the link points to was written", reloads)
	must(t, os.WriteFile(target+".new", []byte("nameserver 192.0.2.3"), 0o600))
	must(t, os.Rename(target+".new", target))
	within(t, "it was replaced", reloads)
}
