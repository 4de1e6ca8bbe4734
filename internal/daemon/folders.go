package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bootlab/bootlab/internal/lab"
)

// makeFolders makes the folders of persistent state and of the admin socket.
func makeFolders(a lab.Appliance) error {
	if err := stateFolder(a, makeFolder); err != nil {
		return err
	}
	return socketFolder(a, makeFolder)
}

func stateFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(a.State, 0o750); err != nil {
		return fmt.Errorf("appliance.state: %w: want a folder, or a path at which one can be made", err)
	}
	return nil
}

func socketFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(filepath.Dir(a.AdminSocket), 0o755); err != nil {
		return fmt.Errorf("appliance.admin_socket: %w: want its folder, or a path at which one can be made", err)
	}
	return nil
}

// makeFolder makes a folder, unless it is there. Every user may enter those that it makes above it, which stay root's.
func makeFolder(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(dir, mode)
}
