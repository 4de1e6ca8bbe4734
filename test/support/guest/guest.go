package guest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

//go:embed init.sh
var initScript []byte

//go:embed lease.sh
var leaseScript []byte

// Files are the paths of the parts of the guest.
type Files struct {
	Kernel string // bzImage with an EFI stub
	Initrd string // gzipped cpio
	Disk   string // raw disk image, bootable on BIOS and UEFI
}

// Programs returns the programs that Build runs, for netns.Need.
func Programs() []string {
	return []string{"apt-get", "dpkg-deb", "busybox", "mkfs.vfat", "mmd", "mcopy", "syslinux"}
}

// Build makes the guest below cache, or finds it there from an earlier call. It fetches the kernel and the UEFI boot loader
// with apt-get, and takes busybox and the BIOS boot loader from the system. Programs that are missing are an error.
func Build(ctx context.Context, cache string) (Files, error) {
	debs, err := fetch(ctx, filepath.Join(cache, "deb"), kernelPackage, loaderPackage)
	if err != nil {
		return Files{}, fmt.Errorf("fetch packages of the guest: %w", err)
	}
	key, err := fingerprint(append(debs, "/bin/busybox", mbrFile)...)
	if err != nil {
		return Files{}, err
	}
	dir := filepath.Join(cache, "guest-"+key)
	files := Files{
		Kernel: filepath.Join(dir, "vmlinuz"),
		Initrd: filepath.Join(dir, "initrd.img"),
		Disk:   filepath.Join(dir, "disk.img"),
	}
	if _, err := os.Stat(files.Disk); err == nil {
		return files, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Files{}, err
	}
	return files, files.build(ctx, debs[0], debs[1])
}

// build makes the three files. The disk is written last and atomically, so that it proves all three.
func (f Files) build(ctx context.Context, kernelDeb, loaderDeb string) error {
	kernel, err := unpackKernel(ctx, kernelDeb, strings.Fields(wantModules))
	if err != nil {
		return fmt.Errorf("unpack %s: %w", kernelDeb, err)
	}
	loader, err := unpack(ctx, loaderDeb, func(name string) bool { return filepath.Base(name) == loaderFile })
	if err != nil {
		return fmt.Errorf("unpack %s: %w", loaderDeb, err)
	}
	if err := os.WriteFile(f.Kernel, kernel.image, 0o644); err != nil {
		return err
	}
	if err := writeInitrd(f.Initrd, kernel.modules); err != nil {
		return fmt.Errorf("write %s: %w", f.Initrd, err)
	}
	for _, body := range loader {
		return writeDisk(ctx, f, body)
	}
	return fmt.Errorf("%s holds no %s", loaderDeb, loaderFile)
}

// fingerprint is a hash of all inputs of the guest.
func fingerprint(files ...string) (string, error) {
	h := sha256.New()
	fmt.Fprint(h, diskLayout, wantModules, bootConfigs)
	h.Write(initScript)
	h.Write(leaseScript)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("read what the guest is made of: %w", err)
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", fmt.Errorf("read what the guest is made of: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// CacheDir returns the folder .cache of the source tree that the working directory is in, or of the working directory itself
// outside of one.
func CacheDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ".cache"
	}
	for up := dir; ; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			return filepath.Join(up, ".cache")
		}
		if up == filepath.Dir(up) {
			return filepath.Join(dir, ".cache")
		}
	}
}
