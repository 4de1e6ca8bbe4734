package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
)

const (
	binaryVar  = "BOOTLAB_E2E_BINARY"  // the daemon under test
	backendVar = "BOOTLAB_E2E_BACKEND" // set: this process is a backend
)

func TestMain(m *testing.M) {
	if name := os.Getenv(backendVar); name != "" {
		serveBackend(name)
		return
	}
	flag.Parse()
	if !testing.Short() && os.Getenv(binaryVar) == "" && os.Geteuid() == 0 {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			os.Exit(1)
		}
	}
	if os.Getenv(installVar) != "" && !netns.Inside() {
		if err := errors.Join(serveArchive(), buildInstaller(context.Background())); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: Debian's archive, an installer:", err)
			os.Exit(1)
		}
	}
	netns.Main(m)
}

// prepare does what needs a network: it builds the daemon, and the guest from Debian's packages. A guest that cannot be built fails the
// tests that need it.
func prepare() error {
	binary := filepath.Join(guest.CacheDir(), "e2e", "bootlab")
	args := []string{"build", "-tags=libvirt_dlopen", "-buildvcs=false", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "github.com/bootlab/bootlab/cmd/bootlab")...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	_, _ = guest.Build(context.Background(), guest.CacheDir())
	return os.Setenv(binaryVar, binary)
}
