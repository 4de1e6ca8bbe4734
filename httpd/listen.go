package httpd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ListenUnix opens the Unix socket of the admin plane at path, mode 0660: its owner and group may use it. A socket that a
// dead daemon left behind is taken away; a live one is an error. The folder is made where there is none.
func ListenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Until here others lack the right to write, which connect(2) asks for, under any sensible umask.
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func removeStale(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return errors.New("another bootlab daemon answers there")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil // not there, or not ours to judge: net.Listen will tell
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil
	}
	return os.Remove(path)
}
