package firmware

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sbatShim = "sbat,1,SBAT Version,sbat,1,https://github.com/rhboot/shim/blob/main/SBAT.md\n" +
	"shim,4,UEFI shim,shim,1,https://github.com/rhboot/shim\nshim.debian,1,Debian,shim,16.1,https://tracker.debian.org/pkg/shim\n"

// efi returns a minimal EFI program for that machine type, with an SBAT section.
func efi(machine uint16, sbat string) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	b.WriteString("MZ")
	b.Write(make([]byte, 0x3a))
	put(uint32(0x40)) // offset of the header
	b.WriteString("PE\x00\x00")
	put([]uint16{machine, 1}) // one section
	put([]uint32{0, 0, 0})    // time, symbols
	put([]uint16{0, 0})       // no optional header
	b.WriteString(".sbat\x00\x00\x00")
	put([]uint32{uint32(len(sbat)), 0, uint32(len(sbat)), uint32(b.Len() + 32)})
	put([]uint32{0, 0, 0, 0})
	b.WriteString(sbat)
	return b.Bytes()
}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		body          []byte
		runs, version string
	}{
		{"shim", efi(0x8664, sbatShim), "UEFI x64", "16.1 of Debian"},
		{"padded", efi(0xaa64, sbatShim+"\n\x00\x00\x00"), "UEFI arm64", "16.1 of Debian"},
		{"no SBAT", efi(0x8664, ""), "UEFI x64", ""},
		{"SBAT cut short", efi(0x8664, "sbat,1,SBAT"), "UEFI x64", ""},
		{"escape sequences", efi(0x8664, "a,1,Ev\x1b[2Jil,a,1\x07,x"), "UEFI x64", "1 of Ev[2Jil"},
		{"iPXE", append(efi(0x14c, "ipxe,1,iPXE,ipxe,1,x"), "\x001.21.1+ (8460dc4)\x00"...), "UEFI ia32", "1.21.1+ (8460dc4)"},
		{"Debian's iPXE", append(efi(0x8664, ""), "\x001.0.0+git-20190125.36a4c85-5.1\x00"...), "UEFI x64", "1.0.0+git-20190125.36a4c85-5.1"},
		{"a script", []byte("#!ipxe\n"), "", ""},
		{"nothing", nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			runs, version := inspect(tt.body)
			if runs != tt.runs || version != tt.version {
				t.Errorf("got %q, %q; want %q, %q", runs, version, tt.runs, tt.version)
			}
		})
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(efi(0x8664, sbatShim))
	f.Add(efi(0xaa64, "a,b,c,d,e,f"))
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, body []byte) {
		runs, version := inspect(body)
		for _, s := range []string{runs, version} {
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) || len(s) > 200 {
				t.Errorf("%q is long or has control characters", s)
			}
		}
	})
}

// TestList: served programs are listed with their description, missing ones with how to get them.
func TestList(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	shim := efi(0x8664, sbatShim)
	write(t, filepath.Join(own, ShimX64), string(shim))
	write(t, filepath.Join(own, "memtest.efi"), string(efi(0x8664, "")))
	all, err := List(own)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Program{}
	var names []string
	for _, p := range all {
		byName[p.Name] = p
		names = append(names, p.Name)
		if (p.SHA256 == "") == (p.Missing == "") || (p.SHA256 == "") != (p.Size == 0) {
			t.Errorf("%+v: want either a file or how to get it", p)
		}
	}
	want := []string{BIOS, UEFI, UEFISNP, ARM64, ShimX64, GRUBX64, ShimARM64, GRUBARM64, IA32, ARM32, RISCV64, LoongArch64, "memtest.efi"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if want := "put it into the folder of --firmware of bootlab serve; only such machines need it"; byName[IA32].Missing != want {
		t.Errorf("%s: %q, want %q", IA32, byName[IA32].Missing, want)
	}
	sum := sha256.Sum256(shim)
	wantShim := Program{
		Name: ShimX64, Runs: "UEFI x64", What: "shim, Secure Boot: starts GRUB", Version: "16.1 of Debian", Origin: "folder " + own,
		Size: int64(len(shim)), SHA256: hex.EncodeToString(sum[:]),
	}
	if diff := cmp.Diff(wantShim, byName[ShimX64]); diff != "" {
		t.Errorf("shim of the folder (-want +got)\n%s", diff)
	}
	if p := byName[GRUBX64]; p.Missing != "" && !strings.Contains(p.Missing, "apt-get install grub-efi-amd64-signed") {
		t.Errorf("GRUB is missing, get it by %q", p.Missing)
	}
	if _, err := assets.ReadFile("assets/" + UEFI); err != nil {
		return // make assets
	}
	p := byName[UEFI]
	if p.Origin != builtIn || p.Licence != "GPL-2.0-or-later" || !strings.HasPrefix(p.Version, "1.21.1+ (") ||
		!strings.Contains(string(sums), p.SHA256+"  "+UEFI) || !strings.Contains(p.Source, commit()) {
		t.Errorf("built in: %+v", p)
	}
}

// TestCatalog: every program has a unique name, a licence and a source.
func TestCatalog(t *testing.T) {
	t.Parallel()
	names := Names()
	if len(slices.Compact(slices.Clone(names))) != len(programs()) {
		t.Errorf("names %v: want each once", names)
	}
	for _, p := range programs() {
		if p.licence == "" || p.source == "" || p.runs == "" || p.toGet() == "" {
			t.Errorf("%+v: want licence, source and firmware", p)
		}
	}
}
