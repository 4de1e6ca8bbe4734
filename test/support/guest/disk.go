package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// The disk has a master boot record, a gap of 1 MiB, and one FAT partition that is both an EFI system partition and active.
const (
	diskLayout   = "mbr+fat16 v1"
	sector       = 512
	gap          = 1 << 20
	slack        = 2 << 20 // room beside kernel and initrd
	mbrFile      = "/usr/lib/syslinux/mbr/mbr.bin"
	espType      = 0xef
	installedArg = "console=ttyS0 quiet no_timer_check bootlab.installed=1"
)

// bootConfigs are the configurations of the two boot loaders: syslinux for BIOS, systemd-boot for UEFI.
const bootConfigs = "" +
	syslinuxConfig + loaderConfig + entryConfig

const (
	syslinuxConfig = "DEFAULT linux\nPROMPT 0\nLABEL linux\n  KERNEL vmlinuz\n  INITRD initrd.img\n  APPEND " + installedArg + "\n"
	loaderConfig   = "default linux.conf\ntimeout 0\neditor no\n"
	entryConfig    = "title guest\nlinux /vmlinuz\ninitrd /initrd.img\noptions " + installedArg + "\n"
)

// writeDisk makes f.Disk from f.Kernel, f.Initrd and the UEFI boot loader, without mounting anything.
func writeDisk(ctx context.Context, f Files, loader []byte) error {
	work, err := os.MkdirTemp(filepath.Dir(f.Disk), "disk")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fat := filepath.Join(work, "fat")
	if err := makePartition(ctx, f, fat, loader, work); err != nil {
		return err
	}
	whole := filepath.Join(work, "disk")
	if err := joinDisk(whole, fat); err != nil {
		return fmt.Errorf("write %s: %w", f.Disk, err)
	}
	return os.Rename(whole, f.Disk)
}

func makePartition(ctx context.Context, f Files, fat string, loader []byte, work string) error {
	var size int64 = slack
	for _, name := range []string{f.Kernel, f.Initrd} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		size += info.Size()
	}
	text := map[string]string{"syslinux.cfg": syslinuxConfig, "loader.conf": loaderConfig, "linux.conf": entryConfig, "bootx64.efi": string(loader)}
	for name, body := range text {
		if err := os.WriteFile(filepath.Join(work, name), []byte(body), 0o644); err != nil {
			return err
		}
	}
	kib := strconv.FormatInt((size+1<<20-1)>>20<<10, 10)
	in := func(name string) string { return filepath.Join(work, name) }
	return run(ctx,
		[]string{"mkfs.vfat", "-F", "16", "-h", strconv.Itoa(gap / sector), "-n", "GUEST", "-C", fat, kib},
		[]string{"mmd", "-i", fat, "::EFI", "::EFI/BOOT", "::loader", "::loader/entries"},
		[]string{"mcopy", "-i", fat, f.Kernel, "::vmlinuz"},
		[]string{"mcopy", "-i", fat, f.Initrd, "::initrd.img"},
		[]string{"mcopy", "-i", fat, in("syslinux.cfg"), "::syslinux.cfg"},
		[]string{"mcopy", "-i", fat, in("bootx64.efi"), "::EFI/BOOT/BOOTX64.EFI"},
		[]string{"mcopy", "-i", fat, in("loader.conf"), "::loader/loader.conf"},
		[]string{"mcopy", "-i", fat, in("linux.conf"), "::loader/entries/linux.conf"},
		[]string{"syslinux", "--install", fat},
	)
}

// joinDisk writes the master boot record, the gap and the partition.
func joinDisk(whole, fat string) error {
	code, err := os.ReadFile(mbrFile)
	if err != nil {
		return err
	}
	part, err := os.Open(fat)
	if err != nil {
		return err
	}
	defer part.Close()
	info, err := part.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(whole)
	if err != nil {
		return err
	}
	head := make([]byte, gap)
	copy(head[:440], code)
	entry := head[446:462]
	entry[0] = 0x80 // active
	copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
	entry[4] = espType
	copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(entry[8:], gap/sector)
	binary.LittleEndian.PutUint32(entry[12:], uint32(info.Size()/sector))
	head[510], head[511] = 0x55, 0xaa
	_, err = out.Write(head)
	if err == nil {
		_, err = io.Copy(out, part)
	}
	return errors.Join(err, out.Close())
}

// run runs the commands one after the other.
func run(ctx context.Context, commands ...[]string) error {
	for _, c := range commands {
		cmd := exec.CommandContext(ctx, c[0], c[1:]...)
		cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1", "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c[0], err, out)
		}
	}
	return nil
}
