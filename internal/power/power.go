package power

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

// timeout is of a whole power cycle: controllers are slow, and some queue requests.
const timeout = time.Minute

// Cycle restarts the machine behind b and makes it boot from the network once. The error says what the controller refused
// and, if known, what to do.
func Cycle(ctx context.Context, b *lab.BMC) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	password, err := readPassword(b.PasswordFile)
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
		return addHint(b, err)
	}
	return nil
}

// readPassword returns the first line of a file; without a file, no password.
func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read bmc.password_file: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r"), nil
}

// addHint adds the controller, and for common errors what to do.
func addHint(b *lab.BMC, err error) error {
	err = fmt.Errorf("controller %s: %w", b.Redfish, err)
	switch {
	case untrusted(err):
		return fmt.Errorf("%w; set bmc.ca_file to its certificate, or bmc.insecure: true to accept any", err)
	case errors.Is(err, errCredentials):
		return fmt.Errorf("%w; check bmc.username and bmc.password_file", err)
	}
	return err
}

// maxMessage is how many bytes of a controller's message an error may contain.
const maxMessage = 200

// printable returns s on one line, without characters that control a terminal.
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
