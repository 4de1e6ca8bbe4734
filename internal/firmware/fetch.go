//go:build ignore

// Fetch puts the network boot programs into the folder assets and verifies them against SHA256SUMS. "make assets" runs it.
//
// They stand as data in a Go module, which the go command fetches and checks against the checksum database; nothing of that
// module is compiled. The script that their builder embedded is overwritten with embed.ipxe: the builder's waits for a key, takes
// two leases of its own, and ends with success whatever the boot script said, which drops UEFI firmware into its menu
// instead of letting it go on to the disk. The program for BIOS is compressed: package kpxe changes it.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bootlab/bootlab/internal/firmware/kpxe"
)

const (
	module = "github.com/tinkerbell/tinkerbell@v0.25.0"
	folder = "smee/internal/ipxe/binary/file"
)

var programs = []struct {
	from, to string
	replace  func(body, old, new []byte) ([]byte, error) // puts our script in the place of the builder's, which is as long
}{
	{"undionly.kpxe", "undionly.kpxe", kpxe.Replace},
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

// verify compares what is in assets with SHA256SUMS.
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

// overwrite returns body with old, which must stand there once, replaced by new.
func overwrite(body, old, new []byte) ([]byte, error) {
	if n := bytes.Count(body, old); n != 1 {
		return nil, fmt.Errorf("holds the builder's script %d times, want once", n)
	}
	return bytes.Replace(body, old, new, 1), nil
}
