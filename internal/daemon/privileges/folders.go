package privileges

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// MakeFolders makes the folders of persistent state and of the admin socket.
func MakeFolders(a lab.Appliance) error {
	if err := stateFolder(a, makeFolder); err != nil {
		return err
	}
	return socketFolder(a, makeFolder)
}

func stateFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(a.State, 0o750); err != nil {
		return &startError{fmt.Errorf("appliance.state: %w", err), "want a folder, or a path at which one can be made"}
	}
	return nil
}

func socketFolder(a lab.Appliance, do func(dir string, mode fs.FileMode) error) error {
	if err := do(filepath.Dir(a.AdminSocket), 0o755); err != nil {
		return &startError{fmt.Errorf("appliance.admin_socket: %w", err), "want its folder, or a path at which one can be made"}
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

// usable returns an error that says what to do if the user of the process may not work in the state folder. What root has opened there
// would work only until the next new file.
func usable(folder, user string) error {
	if err := enterable(folder, folder, user); err != nil {
		return err
	}
	if errors.Is(unix.Access(folder, unix.R_OK|unix.W_OK), unix.EACCES) {
		return notOpen(folder, user)
	}
	return nil
}

// enterable returns an error if the user of the process may not enter dir, which is the state folder or one above it.
func enterable(dir, folder, user string) error {
	blocked := ""
	for ; ; dir = filepath.Dir(dir) {
		if errors.Is(unix.Access(dir, unix.X_OK), unix.EACCES) {
			blocked = dir // a folder below one that cannot be entered cannot either: the outermost is the cause
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if blocked == "" {
		return nil
	}
	return &startError{fmt.Errorf("appliance.state: user %s may not enter %s, so it cannot use %s", user, blocked, folder),
		"set appliance.state to a folder that it may enter, or run chmod a+x " + blocked}
}

func notOpen(folder, user string) error {
	return &startError{fmt.Errorf("appliance.state: user %s may not read and write %s", user, folder), "run chmod u+rwx " + folder}
}
