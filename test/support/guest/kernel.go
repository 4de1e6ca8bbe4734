package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	kernelPackage = "linux-image-cloud-amd64" // depends on the package that holds the kernel
	loaderPackage = "systemd-boot-efi"
	loaderFile    = "systemd-bootx64.efi"
)

// wantModules are loaded by the guest, together with what they depend on.
const wantModules = "virtio_pci virtio_net virtio_blk virtio_scsi sd_mod"

// fetch returns the package files of the named packages, downloaded to dir where they are not there yet. Where a package
// only points to another version's package, as kernels do, that one is fetched.
func fetch(ctx context.Context, dir string, names ...string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		real, err := resolvePackage(ctx, name)
		if err != nil {
			return nil, err
		}
		file, err := download(ctx, dir, real)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func download(ctx context.Context, dir, name string) (string, error) {
	if have, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb")); len(have) > 0 {
		return slices.Max(have), nil
	}
	cmd := exec.CommandContext(ctx, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get download %s: %w\n%s", name, err, out)
	}
	have, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if len(have) == 0 {
		return "", fmt.Errorf("apt-get download %s: no file in %s", name, dir)
	}
	return slices.Max(have), nil
}

var kernelDependency = regexp.MustCompile(`Depends: (linux-image-\d\S*)`)

func resolvePackage(ctx context.Context, name string) (string, error) {
	if name != kernelPackage {
		return name, nil
	}
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends %s: %w\n%s", name, err, out)
	}
	m := kernelDependency.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("apt-cache depends %s names no kernel; has apt-get update been run?\n%s", name, out)
	}
	return string(m[1]), nil
}

// unpack returns the files of a package that want asks for, by name.
func unpack(ctx context.Context, deb string, want func(name string) bool) (map[string][]byte, error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	files, err := readTar(out, want)
	_, _ = io.Copy(io.Discard, out) // padding after the last entry
	return files, errors.Join(err, cmd.Wait())
}

func readTar(r io.Reader, want func(name string) bool) (map[string][]byte, error) {
	files := make(map[string][]byte)
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg || !want(h.Name) {
			continue
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
}

// A kernel is a kernel and the modules that the guest loads, in the order in which it does.
type kernel struct {
	image   []byte
	modules []module
}

type module struct {
	name string // without .ko, with underscores
	body []byte
}

func unpackKernel(ctx context.Context, deb string, want []string) (kernel, error) {
	files, err := unpack(ctx, deb, func(name string) bool {
		return strings.HasPrefix(name, "./boot/vmlinuz-") || strings.HasSuffix(name, ".ko")
	})
	if err != nil {
		return kernel{}, err
	}
	var k kernel
	modules := make(map[string][]byte)
	for name, body := range files {
		if base, ok := strings.CutSuffix(filepath.Base(name), ".ko"); ok {
			modules[strings.ReplaceAll(base, "-", "_")] = body
		} else {
			k.image = body
		}
	}
	if k.image == nil {
		return kernel{}, errors.New("no boot/vmlinuz")
	}
	k.modules, err = inOrder(modules, want)
	return k, err
}

// inOrder returns the wanted modules, each after those it depends on. A module that is not there is built into the kernel.
func inOrder(all map[string][]byte, want []string) ([]module, error) {
	var order []module
	seen := make(map[string]bool)
	var visit func(name string) error
	visit = func(name string) error {
		body, ok := all[name]
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		needs, err := dependencies(body)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, need := range needs {
			if err := visit(need); err != nil {
				return err
			}
		}
		order = append(order, module{name, body})
		return nil
	}
	for _, name := range want {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// dependencies returns the modules that a module names in its "depends" line.
func dependencies(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(line, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(strings.ReplaceAll(string(list), "-", "_"), ","), nil
		}
	}
	return nil, nil
}
