package files_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestNoDescriptors: a file that cannot be opened now, as the process has no descriptor left, is not one that is never served. It runs in a
// process of its own, whose limit it lowers.
func TestNoDescriptors(t *testing.T) {
	const inChild = "BOOTLAB_TEST_NO_DESCRIPTORS"
	if os.Getenv(inChild) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestNoDescriptors$")
		child.Env = append(os.Environ(), inChild+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	write(t, dir, "k/kernel", "public/sub/x")
	if err := os.Symlink("sub", dir+"/public/link"); err != nil {
		t.Fatal(err)
	}
	allowed, err := files.Compile(labWith(t, dir, &lab.Profile{Name: "p", Kernel: "k/kernel"}))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"k/kernel", "public/sub/x", "public/link/x"}
	try := func(want error) {
		for _, name := range names {
			f, err := allowed.Open(name)
			if err == nil {
				f.Close()
			}
			if !errors.Is(err, want) || want != nil && errors.Is(err, fs.ErrPermission) {
				t.Errorf("Open(%s) = %v, want %v", name, err, want)
			}
		}
	}
	try(nil)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	try(syscall.EMFILE)
}
