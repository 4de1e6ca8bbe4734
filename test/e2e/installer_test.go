package e2e

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bootlab/bootlab/test/support/guest"
)

//go:embed testdata/init.sh
var installerInit []byte

//go:embed testdata/lease.sh
var installerLease []byte

// installerFile returns the path of a part of the installer: a small Debian in memory with debootstrap, which Debian's own installer uses
// too. It needs only packages from the archive.
func installerFile(name string) string { return filepath.Join(guest.CacheDir(), "installer-12", name) }

// buildInstaller builds the installer, unless an earlier run did. It needs the archive, and takes a minute.
func buildInstaller(ctx context.Context) error {
	if _, err := os.Stat(installerFile("initrd.gz")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	base, err := archiveBase()
	if err != nil {
		return err
	}
	root := installerFile("root")
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	err = runQuiet(ctx, "debootstrap", "--variant=minbase", "--include=debootstrap,linux-image-cloud-amd64,busybox-static,wget,fdisk,kmod",
		"bookworm", root, base.String())
	if err != nil {
		return err
	}
	for name, body := range map[string][]byte{"init": installerInit, "lease.sh": installerLease} {
		if err := os.WriteFile(filepath.Join(root, name), body, 0o755); err != nil {
			return err
		}
	}
	// Kernel, documentation and unneeded drivers are removed.
	err = runQuiet(ctx, "sh", "-ec", `
		cp "$1"/boot/vmlinuz-* "$2"
		cd "$1"
		rm -rf boot/* var/cache/apt/* var/lib/apt/lists/* usr/share/doc usr/share/man usr/share/locale lib/modules/*/kernel/drivers/gpu lib/modules/*/kernel/drivers/infiniband
		find . -xdev | cpio --quiet -o -H newc | gzip -1 >"$3.new"
		mv "$3.new" "$3"`, "sh", root, installerFile("vmlinuz"), installerFile("initrd.gz"))
	return errors.Join(err, os.RemoveAll(root))
}

// runQuiet runs a command and returns its output only in an error.
func runQuiet(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}
