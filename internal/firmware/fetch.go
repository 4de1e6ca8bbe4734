//go:build ignore

// Fetch puts the network boot programs into the folder assets and verifies them against SHA256SUMS. "make assets" runs it.
//
// They are data in a Go module, which the go command downloads and verifies against the checksum database. Nothing of that module is
// compiled. The script that their builder embedded is overwritten with embed.ipxe: the builder's waits for a key, takes two leases of
// its own, and ends with success whatever the boot script returned, which drops UEFI firmware into its menu instead of letting it go
// on to the disk. In the program for BIOS the script is compressed: xz unpacks and packs it. No DHCP option replaces an embedded
// script, and iPXE for BIOS requests no autoexec.ipxe by itself, so that without this a BIOS machine takes 2.6 s from iPXE's banner
// to its script instead of 0.1 s.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "github.com/tinkerbell/tinkerbell@v0.25.0"
	folder = "smee/internal/ipxe/binary/file"
)

var programs = []struct {
	from, to string
	replace  func(body, old, new []byte) ([]byte, error) // puts our script in the place of the builder's, which is as long
}{
	{"undionly.kpxe", "undionly.kpxe", overwritePacked},
	{"ipxe.efi", "ipxe.efi", overwrite},
	{"snp-x86_64.efi", "snponly.efi", overwrite},
	{"snp-arm64.efi", "snponly-arm64.efi", overwrite},
	{"script/ipxe.commit", "ipxe.commit", nil},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fetch: ")
	if verify() == nil {
		return
	}
	if err := fetch(); err != nil {
		log.Fatal(err)
	}
	if err := verify(); err != nil {
		log.Fatal(err)
	}
}

// verify compares the files in assets with SHA256SUMS.
func verify() error {
	sums, err := os.Open("SHA256SUMS")
	if err != nil {
		return err
	}
	defer sums.Close()
	var errs []error
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		body, err := os.ReadFile(filepath.Join("assets", name))
		sum := sha256.Sum256(body)
		if got := hex.EncodeToString(sum[:]); err == nil && got != want {
			err = fmt.Errorf("%s: SHA-256 is %s, want %s", name, got, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func fetch() error {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // outside of our own module
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download %s: %w\n%s", module, err, out)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return err
	}
	from := filepath.Join(downloaded.Dir, folder)
	theirs, err := os.ReadFile(filepath.Join(from, "script/embed.ipxe"))
	if err != nil {
		return err
	}
	ours, err := script(len(theirs))
	if err != nil {
		return err
	}
	for _, p := range programs {
		body, err := os.ReadFile(filepath.Join(from, p.from))
		if err == nil && p.replace != nil {
			body, err = p.replace(body, theirs, ours)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join("assets", p.to), body, 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.to, err)
		}
	}
	return nil
}

// script returns our script with newlines up to size.
func script(size int) ([]byte, error) {
	ours, err := os.ReadFile("embed.ipxe")
	if err != nil {
		return nil, err
	}
	if len(ours) > size {
		return nil, fmt.Errorf("our script is longer than the builder's: %d > %d bytes", len(ours), size)
	}
	return append(ours, bytes.Repeat([]byte("\n"), size-len(ours))...), nil
}

// overwrite returns body with old, which it must hold once, replaced by new.
func overwrite(body, old, new []byte) ([]byte, error) {
	if n := bytes.Count(body, old); n != 1 {
		return nil, fmt.Errorf("holds the builder's script %d times, want once", n)
	}
	return bytes.Replace(body, old, new, 1), nil
}

// overwritePacked is overwrite for iPXE's program for BIOS, a loader and packed blocks. The last block is most of iPXE and holds the
// script: the length of the rest in four bytes, an LZMA stream without a header, and a CRC of the stream (iPXE's src/util/zbin.c). The
// header gives the program's length, so zeros fill what the new block is shorter by.
func overwritePacked(program, old, new []byte) ([]byte, error) {
	at, stream, err := lastBlock(program)
	if err != nil {
		return nil, err
	}
	data, err := xz(stream, "--decompress")
	if err != nil {
		return nil, err
	}
	// zbin made the targets of calls and jumps absolute, behind every byte that may be one: text moves none unless it holds one.
	before := data[max(0, bytes.Index(data, old)-4):]
	if call := func(b byte) bool { return b == 0xe8 || b == 0xe9 }; slices.ContainsFunc(new, call) || slices.ContainsFunc(before[:4], call) {
		return nil, errors.New("the script, or the byte before it, looks like a call or a jump")
	}
	if data, err = overwrite(data, old, new); err != nil {
		return nil, err
	}
	if stream, err = xz(data, "--compress"); err != nil {
		return nil, err
	}
	block := binary.LittleEndian.AppendUint32(nil, uint32(len(stream)+crcSize))
	block = binary.LittleEndian.AppendUint32(append(block, stream...), checksum(stream))
	size := len(program) - at
	if len(block) > size {
		return nil, fmt.Errorf("the packed block needs %d bytes, and has %d", len(block), size)
	}
	return slices.Concat(program[:at], block, make([]byte, size-len(block))), nil
}

const crcSize = 4

// lastBlock returns the offset of the block that only zeros follow, and its stream.
func lastBlock(program []byte) (at int, stream []byte, err error) {
	zeros := len(program) - len(bytes.TrimRight(program, "\x00"))
	for at := range len(program) - crcSize {
		n, rest := int(binary.LittleEndian.Uint32(program[at:])), program[at+4:]
		if n < crcSize || n > len(rest) || n+zeros < len(rest) {
			continue
		}
		if stream := rest[:n-crcSize]; checksum(stream) == binary.LittleEndian.Uint32(rest[n-crcSize:]) {
			return at, stream, nil
		}
	}
	return 0, nil, errors.New("no packed block is at the end of the program")
}

// checksum is the CRC of iPXE's loader: CRC-32 without the final inversion.
func checksum(b []byte) uint32 { return ^crc32.ChecksumIEEE(b) }

// xz packs or unpacks a stream as zbin does: packing what was unpacked gives the builder's own bytes.
func xz(in []byte, direction string) ([]byte, error) {
	cmd := exec.Command("xz", direction, "--stdout", "--format=raw", "--lzma1=preset=9e,dict=8MiB,lc=2,lp=0,pb=0")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("xz %s (of xz-utils): %w", direction, err)
	}
	return out, nil
}
