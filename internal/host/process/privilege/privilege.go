package privilege

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// A Capability is one part of what root may do; see capabilities(7).
type Capability = cap.Value

// The capabilities that a network server may want to keep.
const (
	NetBindService Capability = cap.NET_BIND_SERVICE // listen on ports below 1024
	NetRaw         Capability = cap.NET_RAW          // raw frames, and binding a socket to an interface
	NetAdmin       Capability = cap.NET_ADMIN        // addresses of interfaces; effective only within Using
	Chown          Capability = cap.CHOWN            // give files away
	DACOverride    Capability = cap.DAC_OVERRIDE     // open files of other users
	FOwner         Capability = cap.FOWNER           // change files of other users
	SysPtrace      Capability = cap.SYS_PTRACE       // see who holds a port
	SetPCap        Capability = cap.SETPCAP          // take capabilities from a program that root starts
)

// A User is a user to drop to.
type User struct {
	Name   string
	UID    int
	GID    int
	Groups []int // supplementary, such as libvirt's
	Home   string
}

// A missingUser is the error that there is no user of that name.
type missingUser string

// Error returns the name of the user, and the fix.
func (u missingUser) Error() string { return u.Unwrap().Error() + ": " + u.Fix() }

// Unwrap returns the error without the fix.
func (u missingUser) Unwrap() error { return fmt.Errorf("no user %q", string(u)) }

// Fix returns what to do.
func (u missingUser) Fix() string {
	return fmt.Sprintf("create it with \"useradd --system --user-group --home-dir /var/lib/bootlab --shell /usr/sbin/nologin %s\", "+
		"or set appliance.user to another user, or to \"root\" to keep root", string(u))
}

// Lookup finds a user of this machine. The error for a missing one says how to create it.
func Lookup(name string) (*User, error) {
	u, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return nil, missingUser(name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up user %q: %w", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look up groups of user %q: %w", name, err)
	}
	var errs [3]error
	found := &User{Name: name, Home: u.HomeDir}
	found.UID, errs[0] = strconv.Atoi(u.Uid)
	found.GID, errs[1] = strconv.Atoi(u.Gid)
	for _, g := range groups {
		id, err := strconv.Atoi(g)
		errs[2] = errors.Join(errs[2], err)
		found.Groups = append(found.Groups, id)
	}
	return found, errors.Join(errs[:]...)
}

// As calls do on a thread that is the user, with its groups and without capabilities, and returns the error of do. What do starts in
// goroutines is not the user. It needs root.
func (u *User) As(do func() error) error {
	_, err := cap.FuncLauncher(func(any) error {
		err := cap.SetGroups(u.GID, u.Groups...)
		if err == nil {
			err = cap.SetUID(u.UID)
		}
		if err == nil {
			err = cap.NewSet().SetProc()
		}
		if err != nil {
			return fmt.Errorf("become user %s: %w", u.Name, err)
		}
		return do()
	}).Launch(nil)
	return err
}

// Own creates each folder if it is missing, and makes the user the owner of it and of everything in it. Symbolic links are not
// followed, and files with several hard links are skipped: the user may have linked a file of another user. On a read-only file system
// everything stays as it is.
func (u *User) Own(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		if err := u.own(dir); err != nil {
			return fmt.Errorf("give %s to user %s: %w", dir, u.Name, err)
		}
	}
	return nil
}

func (u *User) own(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.IsDir() && st.Nlink > 1 || int(st.Uid) == u.UID && int(st.Gid) == u.GID {
			return nil
		}
		if err := root.Lchown(path, u.UID, u.GID); !errors.Is(err, syscall.EROFS) {
			return err
		}
		return nil // nobody can change its owner, nor the file
	})
}

// OwnSocket makes the user the owner of the Unix socket at path, and of its folder if the folder holds nothing else. In a
// shared folder such as /run the user cannot remove the socket when it ends.
func (u *User) OwnSocket(path string) error {
	if err := os.Lchown(path, u.UID, u.GID); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, u.Name, err)
	}
	dir := filepath.Dir(path)
	beside, err := os.ReadDir(dir)
	if err != nil || len(beside) > 1 {
		return err
	}
	if err := os.Lchown(dir, u.UID, u.GID); err != nil {
		return fmt.Errorf("give %s to user %s: %w", dir, u.Name, err)
	}
	return nil
}

// Bound takes all other capabilities than keep from the programs that this process starts. Drop does it too. To do it earlier, while
// no other thread is busy, is a matter of time: each capability stops every thread, 0.1 ms for threads that wait and 6 for busy ones.
func (u *User) Bound(keep ...Capability) error {
	if err := shrinkBounds(keep); err != nil {
		return fmt.Errorf("become user %s: shrink the bounding set: %w", u.Name, err)
	}
	return nil
}

// Drop makes the whole process run as the user, with the user's HOME and only the capabilities to keep. It cannot be undone:
// programs that the process starts have no capability and cannot gain one, not even by set-user-ID. It needs root; after an
// error the process must end.
func (u *User) Drop(keep ...Capability) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("become user %s: not root", u.Name)
	}
	if u.UID == 0 {
		return fmt.Errorf("become user %s: it is root; set appliance.user to \"root\" to keep root", u.Name)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"shrink the bounding set", func() error { return shrinkBounds(keep) }},
		{"clear ambient capabilities", cap.ResetAmbient},
		{"set groups", func() error { return cap.SetGroups(u.GID, u.Groups...) }},
		{"set user", func() error { return cap.SetUID(u.UID) }}, // keeps what is permitted
		{"set capabilities", func() error { return setCapabilities(keep) }},
		{"set no_new_privs", noNewPrivileges},
		// No core dump, and no look into its memory, for other processes of the user: it holds secrets.
		{"become undumpable", Undumpable},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("become user %s: %s: %w", u.Name, step.what, err)
		}
	}
	// ssh and libvirt look for keys and certificates in the home folder.
	return errors.Join(os.Setenv("HOME", u.Home), os.Setenv("USER", u.Name), os.Setenv("LOGNAME", u.Name))
}

// Keep makes the process, under any user, keep no capability but these, of those that it has. Programs that it starts have
// none, unless it is root, whose programs have the same. It cannot be undone; it is for a process that changes no user.
func Keep(keep ...Capability) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"shrink the bounding set", func() error {
			if set, err := cap.GetProc().GetFlag(cap.Effective, cap.SETPCAP); err != nil || !set {
				return err // what started it has set the bounds
			}
			return shrinkBounds(keep)
		}},
		{"clear ambient capabilities", cap.ResetAmbient},
		{"set capabilities", func() error { return setCapabilities(permitted(keep)) }},
		{"set no_new_privs", noNewPrivileges},
		{"become undumpable", Undumpable},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("limit privileges: %s: %w", step.what, err)
		}
	}
	return nil
}

// Raise makes these capabilities but NetAdmin effective, of those that the process has as permitted only: a program gets them so from its
// file (setcap cap_net_raw=p), which runs also where a container engine denies one of them.
func Raise(caps ...Capability) error {
	has := cap.GetProc()
	caps = slices.DeleteFunc(permitted(caps), func(c Capability) bool { return c == NetAdmin })
	if err := has.SetFlag(cap.Effective, true, caps...); err != nil {
		return err
	}
	if err := has.SetProc(); err != nil {
		return fmt.Errorf("raise capabilities: %w", err)
	}
	return nil
}

// permitted returns those of the capabilities that the process has.
func permitted(caps []Capability) []Capability {
	has := cap.GetProc()
	return slices.DeleteFunc(slices.Clone(caps), func(c Capability) bool {
		set, err := has.GetFlag(cap.Permitted, c)
		return err != nil || !set
	})
}

// shrinkBounds removes all other capabilities from the bounding set.
func shrinkBounds(keep []Capability) error {
	for c := Capability(0); c < cap.MaxBits(); c++ {
		has, err := cap.GetBound(c)
		if err != nil {
			return err
		}
		if !has || slices.Contains(keep, c) {
			continue
		}
		if err := cap.DropBound(c); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

func setCapabilities(keep []Capability) error {
	set := cap.NewSet()
	if err := errors.Join(set.SetFlag(cap.Permitted, true, keep...), set.SetFlag(cap.Effective, true, keep...), set.SetFlag(cap.Effective, false, NetAdmin)); err != nil {
		return err
	}
	return set.SetProc()
}

// Using calls do on a thread where c is effective, and nowhere else. The process must have it as permitted, else the error is
// fs.ErrPermission. do must not start goroutines.
func Using(c Capability, do func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	word, bit := int(c)/32, uint32(1)<<(int(c)%32)
	if before[word].Permitted&bit == 0 {
		return &os.SyscallError{Syscall: strings.ToUpper(c.String()), Err: unix.EPERM}
	}
	if before[word].Effective&bit != 0 {
		return do()
	}
	raised := before
	raised[word].Effective |= bit
	if err := unix.Capset(&header, &raised[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	defer func() { err = errors.Join(err, os.NewSyscallError("capset", unix.Capset(&header, &before[0]))) }()
	return do()
}

// Undumpable keeps the memory of the process from core dumps and from debuggers, of its own user too.
func Undumpable() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

func noNewPrivileges() error {
	_, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	return err
}
