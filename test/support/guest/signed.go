package guest

import (
	"context"
	"os"
	"path/filepath"
)

// What Debian's packages shim-signed and grub-efi-amd64-signed install.
const (
	signedShim = "/usr/lib/shim/shimx64.efi.signed"
	signedGRUB = "/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
)

// SignedNeeds returns what SignedDisk needs beside Programs, for netns.Need.
func SignedNeeds() []string { return []string{signedShim, signedGRUB} }

// signedConfig is GRUB's configuration on the disk. GRUB that Debian signed for disks looks for it in EFI/debian.
const signedConfig = "linux /vmlinuz " + installedArg + "\ninitrd /initrd.img\nboot\n"

// SignedDisk makes a disk image in the folder dir that holds the same system as f.Disk and starts under Secure Boot, on
// UEFI alone: its boot loaders are shim and GRUB as Debian signed them, in the folder where Debian's installer puts them.
func SignedDisk(ctx context.Context, f Files, dir string) (string, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("grub.cfg"), []byte(signedConfig), 0o644); err != nil {
		return "", err
	}
	fat, whole := in("fat"), in("disk.img")
	const kib = "32768"
	err := run(ctx,
		[]string{"mkfs.vfat", "-F", "16", "-h", "2048", "-n", "GUEST", "-C", fat, kib},
		[]string{"mmd", "-i", fat, "::EFI", "::EFI/debian"},
		[]string{"mcopy", "-i", fat, f.Kernel, "::vmlinuz"},
		[]string{"mcopy", "-i", fat, f.Initrd, "::initrd.img"},
		[]string{"mcopy", "-i", fat, signedShim, "::EFI/debian/shimx64.efi"},
		[]string{"mcopy", "-i", fat, signedGRUB, "::EFI/debian/grubx64.efi"},
		[]string{"mcopy", "-i", fat, in("grub.cfg"), "::EFI/debian/grub.cfg"},
	)
	if err != nil {
		return "", err
	}
	return whole, joinDisk(whole, fat)
}
