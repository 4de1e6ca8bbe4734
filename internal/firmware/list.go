package firmware

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/pe"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// A Program describes a network boot program: what it is and where it comes from, or how to get it.
type Program struct {
	Name    string `json:"name"`              // the name that it is served under
	Runs    string `json:"runs,omitempty"`    // the firmware that runs it, such as "UEFI x64"
	What    string `json:"what,omitempty"`    // such as "iPXE, with its own drivers"
	Version string `json:"version,omitempty"` // as the program itself states it
	Origin  string `json:"origin,omitempty"`  // builtIn, a folder, or the file of a package
	Licence string `json:"licence,omitempty"` // SPDX identifier; empty for a program from the user's folder
	Source  string `json:"source,omitempty"`  // URL of the source code
	Size    int64  `json:"size,omitempty"`    // bytes
	SHA256  string `json:"sha256,omitempty"`  // in hexadecimal
	Missing string `json:"missing,omitempty"` // how to get it, if it is missing
}

// List returns the programs that FS(dir) serves, and the known programs that are missing. The known programs come first,
// then the other files of the folder by name.
func List(dir string) ([]Program, error) {
	layers := layersOf(dir)
	var all []Program
	for _, known := range programs() {
		p := Program{Name: known.name, Runs: known.runs, What: known.what + ", " + known.about, Licence: known.licence, Source: known.source}
		if err := layers.fill(&p); err != nil {
			return nil, err
		}
		if p.SHA256 == "" {
			p.Missing = known.toGet()
		}
		all = append(all, p)
	}
	entries, err := fs.ReadDir(layers, ".")
	if err != nil {
		return nil, fmt.Errorf("list boot programs: %w", err)
	}
	for _, e := range entries {
		if slices.Contains(Names(), e.Name()) || !Has(layers, e.Name()) {
			continue
		}
		p := Program{Name: e.Name()}
		if err := layers.fill(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// toGet returns instructions for getting a missing program.
func (p program) toGet() string {
	own := "put it into the folder of --firmware"
	switch {
	case p.pkg == "" && p.only != "":
		return own + " of bootlab serve; only " + p.only + " need it"
	case p.pkg == "":
		return "build with make, or " + own
	case p.only != "":
		return "apt-get install " + p.pkg + ", or " + own + "; only " + p.only + " need it"
	}
	return "build with make, apt-get install " + p.pkg + ", or " + own
}

// fill reads the file that is served under p's name into p. If there is none, p stays unchanged.
func (ls layered) fill(p *Program) error {
	for _, l := range ls {
		if l.only != nil && !slices.Contains(l.only, p.Name) {
			continue
		}
		f, err := l.fsys.Open(p.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = p.read(f)
		}
		if err != nil {
			return fmt.Errorf("read boot program %s: %w", p.Name, err)
		}
		l.setOrigin(p)
		return nil
	}
	return nil
}

// maxInspected is how many bytes of a file are inspected. Programs are smaller; other files of a folder may be larger.
const maxInspected = 16 << 20

// read sets size, checksum, firmware and version from a file, and closes it.
func (p *Program) read(f fs.File) error {
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxInspected))
	if err != nil {
		return err
	}
	sum := sha256.New()
	sum.Write(body)
	rest, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	p.Size, p.SHA256 = int64(len(body))+rest, hex.EncodeToString(sum.Sum(nil))
	runs, version := inspect(body)
	p.Runs, p.Version = cmp.Or(p.Runs, runs), version
	return nil
}

// builtIn is the origin of the programs that "make assets" embedded. All are iPXE and run embed.ipxe first.
const builtIn = "built in, first script by bootlab"

// setOrigin sets where the layer has p from.
func (l layer) setOrigin(p *Program) {
	switch fsys := l.fsys.(type) {
	case folder:
		p.Origin, p.Licence, p.Source = "folder "+string(fsys), "", "" // the user may have put any program there
	case system:
		p.Origin = fsys[p.Name]
	default:
		commit := commit()
		p.Origin, p.Source = builtIn, p.Source+"/tree/"+commit
		p.Version = cmp.Or(p.Version, "commit "+commit[:min(7, len(commit))])
	}
}

// commit returns the commit that the embedded iPXE was built from. "make assets" fetches it with the programs.
func commit() string {
	b, err := assets.ReadFile("assets/ipxe.commit")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// ipxeVersion matches the version string in a build of iPXE: "1.21.1+ (8460dc4)".
var ipxeVersion = regexp.MustCompile(`\x00(\d+\.\d+\.\d+\+? ?(?:\([0-9a-f]{4,40}\)|git-[0-9a-z.+-]{4,40}))\x00`)

// inspect returns the firmware that runs an EFI program, and the program's version: from iPXE's banner, or from the last line
// of the SBAT section, which is the signer's. Both are empty for any other file. The bytes need not be trusted.
func inspect(body []byte) (runs, version string) {
	f, err := pe.NewFile(bytes.NewReader(body))
	if err != nil {
		return "", ""
	}
	defer f.Close()
	switch f.Machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		runs = "UEFI x64"
	case pe.IMAGE_FILE_MACHINE_ARM64:
		runs = "UEFI arm64"
	case pe.IMAGE_FILE_MACHINE_I386:
		runs = "UEFI ia32"
	case pe.IMAGE_FILE_MACHINE_ARMNT, pe.IMAGE_FILE_MACHINE_THUMB:
		runs = "UEFI arm32"
	case pe.IMAGE_FILE_MACHINE_RISCV64:
		runs = "UEFI riscv64"
	}
	if m := ipxeVersion.FindSubmatch(body); m != nil {
		return runs, string(m[1])
	}
	return runs, sbatVersion(f)
}

// maxSBAT bounds the SBAT section, which is a few lines.
const maxSBAT = 64 << 10

// sbatVersion returns vendor and version of the last component in an SBAT section: lines of "component, generation, vendor,
// package, version, URL" with commas between (github.com/rhboot/shim, SBAT.md).
func sbatVersion(f *pe.File) string {
	s := f.Section(".sbat")
	if s == nil || s.Size > maxSBAT {
		return ""
	}
	b, err := s.Data()
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(b), "\x00\r\n "), "\n")
	fields := strings.Split(lines[len(lines)-1], ",")
	if len(fields) < 6 {
		return ""
	}
	return printable(fields[4]) + " of " + printable(fields[2])
}

// printable removes the control characters that would affect a terminal, and cuts long text.
func printable(s string) string {
	const maxWord = 64
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s[:min(maxWord, len(s))])
}
