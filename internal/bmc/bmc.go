package bmc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/bootlab/bootlab/internal/lab"
)

// patience is how long all of a power cycle may take: controllers are slow, and some queue requests.
const patience = time.Minute

// Cycle makes the machine behind b boot from the network, once and now. The error says what the controller refused, and
// what to do where that is known.
func Cycle(ctx context.Context, b *lab.BMC) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	password, err := secret(b.PasswordFile)
	if err != nil {
		return err
	}
	if b.IPMI != "" {
		return ipmi(ctx, b)
	}
	r, err := newRedfish(b, password)
	if err != nil {
		return err
	}
	if err := r.cycle(ctx); err != nil {
		return explain(b, err)
	}
	return nil
}

// secret reads a password from its file: the first line. No file is no password.
func secret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the password of the controller: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r"), nil
}

// explain says where it went wrong, and what to do about what is wrong most often.
func explain(b *lab.BMC, err error) error {
	err = fmt.Errorf("controller %s: %w", b.Redfish, err)
	switch {
	case untrusted(err):
		return fmt.Errorf("%w; name its certificate in bmc.ca_file, or take any with bmc.insecure: true", err)
	case errors.Is(err, errCredentials):
		return fmt.Errorf("%w; look at bmc.username and bmc.password_file", err)
	}
	return err
}

// maxMessage is how many bytes of what a controller says are passed on.
const maxMessage = 200

// printable makes a foreign text fit for a terminal, on one line.
func printable(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxMessage)], "")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
