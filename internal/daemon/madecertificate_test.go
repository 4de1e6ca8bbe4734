package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/faultfs"
)

// TestMadeCertificateIsSynced: a certificate that is not on disk has no name yet, for a file that a power cut emptied would never be made anew.
func TestMadeCertificateIsSynced(t *testing.T) {
	dir := t.TempDir()
	disk := faultfs.Mount(t, dir)
	disk.Fail(func(op faultfs.Op, _ int64, _ int) syscall.Errno {
		if op == faultfs.Sync {
			return syscall.EIO
		}
		return 0
	})
	path := filepath.Join(dir, statefile.RedfishCertificate)
	if err := makeCertificate(path, &lab.Lab{}); !errors.Is(err, syscall.EIO) {
		t.Errorf("the disk does not sync: %v", err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("the folder has %v, %v", all, err)
	}
	disk.Fail(nil)
	if err := makeCertificate(path, &lab.Lab{}); err != nil {
		t.Error(err)
	}
}
