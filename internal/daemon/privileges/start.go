package privileges

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/statefile"
	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/identity"
)

// Rehearse returns what the steps of a start find that need no port, and which files of profiles the daemon's user may not read. It calls
// what they call, but leaves no folder behind and stays the user that it is.
func Rehearse(l *lab.Lab, labPath string) (steps, unread []doctor.Finding) {
	a := l.Appliance
	add := func(subject string, err error, good string) {
		if err != nil {
			steps = append(steps, doctor.Failed(subject, err))
			return
		}
		steps = append(steps, doctor.Finding{Subject: subject, Level: doctor.OK, Text: good})
	}
	u, err := daemonUser(a)
	switch {
	case err != nil && a.UserDefault:
		steps = append(steps, doctor.Finding{Subject: "appliance.user", Level: doctor.Warn, Text: keepsRoot + ": " + err.Error()})
	case err == nil && u == nil:
		add("appliance.user", nil, "the daemon stays root")
	default:
		add("appliance.user", err, "the daemon becomes user "+a.User)
	}
	text, err := regular.Within(a.State, regular.Wait, func() (string, error) {
		err := rehearseState(a, u)
		return stateText(a.State), err
	})
	add(a.State, err, text)
	add(filepath.Dir(a.AdminSocket), socketFolder(a, tryFolder), "can have the admin socket")
	if u != nil {
		var documents []string
		if t, err := boot.Compile(l); err == nil { // what is wrong with them else is not about the start
			documents = t.Files()
		}
		unreadable(l, u.GID, openAs(u), func(_ *lab.Profile, _, name, fix string) {
			unread = append(unread, doctor.Finding{Subject: name, Level: doctor.Fail, Text: notRead, Fix: fix})
		})
		add(labPath, readable(u, l, labPath, documents, openAs(u)), "user "+u.Name+" can read it")
	}
	return steps, unread
}

// ExpectLoss returns that a start would find the state lost, and that a loss would not be noticed later.
func ExpectLoss(a lab.Appliance, labPath string) (found []doctor.Finding) {
	beside := identity.BesideLab(labPath)
	if why := identity.Expected(statefile.Path(a), statefile.Left(a.State), filepath.Join(a.State, identity.InFolder), beside); why != "" {
		found = append(found, doctor.Finding{Subject: a.State, Level: doctor.Fail, Text: "install states are lost: " + why + ": a start installs no machine until an admin says so",
			Fix: "mount its disk, put the folder back, or bootlab restore FILE (docs/operations.md#the-state-folder-was-lost)"})
	}
	if unix.Access(filepath.Dir(beside), unix.W_OK) == unix.EROFS && unix.Access(beside, unix.W_OK) != nil {
		found = append(found, doctor.Finding{Subject: beside, Level: doctor.Warn, Text: "cannot be written: without this marker, a loss of the state folder is not noticed",
			Fix: "mount that file writable, or the folder that it is in"})
	}
	return found
}

// A startError is why a start would be refused, and what to do. It implements doctor.Advised.
type startError struct {
	err error
	fix string
}

// Error returns why the start would be refused, and the fix.
func (r *startError) Error() string { return r.err.Error() + ": " + r.fix }

// Unwrap returns why the start would be refused.
func (r *startError) Unwrap() error { return r.err }

// Fix returns what to do.
func (r *startError) Fix() string { return r.fix }

// TryStart returns why a start as root would be refused once it is user u; nil: it stays root. A refused start makes nothing. documents are
// the files that the boot service of l reads.
func TryStart(l *lab.Lab, labPath string, documents []string, u *privilege.User) error {
	a := l.Appliance
	if err := rehearseState(a, u); err != nil {
		return err
	}
	if err := socketFolder(a, tryFolder); err != nil || u == nil {
		return err
	}
	return readable(u, l, labPath, documents, openAs(u))
}

func stateText(dir string) string {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "is made at the first start"
	}
	return "the daemon may use it"
}

// rehearseState returns why u, or root if it is nil, could not work in the state folder.
func rehearseState(a lab.Appliance, u *privilege.User) error {
	if err := stateFolder(a, tryFolder); err != nil || u == nil {
		return err
	}
	if os.Geteuid() == u.UID {
		return usable(a.State, u.Name)
	}
	if err := asUser(u, func() error { return enterable(filepath.Dir(a.State), a.State, u.Name) }); err != nil {
		return err
	}
	if info, err := os.Stat(a.State); err == nil && info.Mode()&0o700 != 0o700 { // the start makes u its owner
		return notOpen(a.State, u.Name)
	}
	return nil
}

// tryFolder returns the error of makeFolder, and leaves nothing behind.
func tryFolder(dir string, _ fs.FileMode) error {
	missing := ""
	above := dir
	for ; above != filepath.Dir(above); above = filepath.Dir(above) {
		if _, err := os.Lstat(above); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = above
	}
	if missing == "" {
		return os.MkdirAll(dir, 0) // makes nothing: it is there, or something else is
	}
	tried, err := os.MkdirTemp(above, ".bootlab-") // another name: a daemon may be about to make the folder itself
	if refused := (*fs.PathError)(nil); errors.As(err, &refused) {
		return &fs.PathError{Op: refused.Op, Path: missing, Err: refused.Err}
	} else if err != nil {
		return err
	}
	return os.Remove(tried)
}

// asUser calls do as u, which root may, and u itself.
func asUser(u *privilege.User, do func() error) error {
	switch os.Geteuid() {
	case u.UID:
		return do()
	case 0:
		return u.As(do)
	}
	return fmt.Errorf("what user %s may do is not known: %w", u.Name, fs.ErrPermission)
}
