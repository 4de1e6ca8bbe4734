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

// A Program is one network boot program: what it is and where it comes from, or how to get it.
type Program struct {
	Name    string `json:"name"`              // under which it is served
	Runs    string `json:"runs,omitempty"`    // the firmware that runs it, such as "UEFI x64"
	What    string `json:"what,omitempty"`    // such as "iPXE, with drivers of its own"
	Version string `json:"version,omitempty"` // as it says of itself
	Origin  string `json:"origin,omitempty"`  // builtIn, a folder, or a file of a package
	Licence string `json:"licence,omitempty"` // SPDX; what is served from your folder is yours to know
	Source  string `json:"source,omitempty"`  // where its source is
	Size    int64  `json:"size,omitempty"`    // bytes
	SHA256  string `json:"sha256,omitempty"`  // in hexadecimal
	Missing string `json:"missing,omitempty"` // how to get it, where it is not there
}

// List returns the programs that are served with that folder of the user's, as FS serves them, and those that are known
// and missing. First come the known ones, then what else is in the folder, by name.
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
	files, err := Files(layers)
	if err != nil {
		return nil, fmt.Errorf("list boot programs: %w", err)
	}
	for _, f := range files {
		if slices.Contains(Names(), f.Name) {
			continue
		}
		p := Program{Name: f.Name}
		if err := layers.fill(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// toGet says how to get a program that is missing.
func (p program) toGet() string {
	own := "put it into the folder of --firmware"
	switch {
	case p.pkg == "":
		return "build with make, or " + own
	case p.optional:
		return "apt-get install " + p.pkg + ", or " + own + "; only labs with chain: grub need it"
	}
	return "build with make, apt-get install " + p.pkg + ", or " + own
}

// fill says what the file is that is served under p's name. Where there is none, p stays as it is.
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
		l.tellOrigin(p)
		return nil
	}
	return nil
}

// maxInspected is how much of a program is looked into. Programs are smaller; other files of a folder need not be.
const maxInspected = 16 << 20

// read takes what a file says of itself, and closes it.
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

// builtIn is the origin of what "make assets" embedded: all of these are iPXE, and run embed.ipxe first.
const builtIn = "built in, first script by bootlab"

// tellOrigin says where a layer has p from.
func (l layer) tellOrigin(p *Program) {
	switch fsys := l.fsys.(type) {
	case folder:
		p.Origin, p.Licence, p.Source = "folder "+string(fsys), "", "" // whatever it is, it is the user's
	case system:
		p.Origin = fsys[p.Name]
	default:
		commit := commit()
		p.Origin, p.Source = builtIn, p.Source+"/tree/"+commit
		p.Version = cmp.Or(p.Version, "commit "+commit[:min(7, len(commit))])
	}
}

// commit returns what the embedded iPXE was built from; it is part of what "make assets" fetches.
func commit() string {
	b, err := assets.ReadFile("assets/ipxe.commit")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// ipxeVersion is how iPXE's builds hold their version: "1.21.1+ (8460dc4)".
var ipxeVersion = regexp.MustCompile(`\x00(\d+\.\d+\.\d+\+? ?(?:\([0-9a-f]{4,40}\)|git-[0-9a-z.+-]{4,40}))\x00`)

// inspect reads from an EFI program which firmware runs it, and its version: of iPXE by its banner, else by the last line
// of SBAT, in which whoever signed the program put their own. Both are empty for what is no such program. Any bytes will do.
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

// maxSBAT is more than any SBAT section: it is a few lines.
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
	return tidy(fields[4]) + " of " + tidy(fields[2])
}

// tidy keeps what a program says of itself from doing things to a terminal.
func tidy(s string) string {
	const maxWord = 64
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s[:min(maxWord, len(s))])
}
