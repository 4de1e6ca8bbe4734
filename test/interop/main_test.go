package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

const binaryVar = "BOOTLAB_INTEROP_BINARY" // the daemon under test

func TestMain(m *testing.M) {
	if os.Getenv(rackVar) != "" {
		runRack()
		return
	}
	if os.Getenv(partVar) != "" {
		runPart()
	}
	flag.Parse()
	if testing.Short() || os.Geteuid() != 0 || netns.Inside() || os.Getenv(binaryVar) != "" {
		netns.Main(m)
	}
	// Downloads come before the namespace, which has no network.
	dir, err := os.MkdirTemp("", "interop")
	if err == nil {
		err = build(filepath.Join(dir, "bootlab"))
	}
	if err == nil {
		err = buildKubeapi(filepath.Join(dir, "kubeapi"))
	}
	if err == nil {
		err = unpackCloudInit(filepath.Join(dir, "cloud-init"))
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	} else {
		code, err = netns.Isolate(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
		}
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build leaves the daemon at path, where any user may start it.
func build(path string) error {
	out, err := exec.Command("go", "build", "-tags=libvirt_dlopen", "-buildvcs=false", "-o", path, "github.com/bootlab/bootlab/cmd/bootlab").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, out)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.Setenv(binaryVar, path)
}
