package privileges

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
	"github.com/bootlab/bootlab/internal/lab"
)

// DropTo returns the user to drop to when started as root; nil: no change.
func DropTo(a lab.Appliance, log *slog.Logger) (*privilege.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := daemonUser(a)
	if err != nil && a.UserDefault {
		log.Warn(keepsRoot, "err", err)
		return nil, nil
	}
	return u, err
}

// daemonUser returns the user that the daemon is to become; nil: it stays root.
func daemonUser(a lab.Appliance) (*privilege.User, error) {
	if a.User == "root" {
		return nil, nil
	}
	return privilege.Lookup(a.User)
}

const keepsRoot = "appliance.user is not set: keeping root"

// Kept are the capabilities that stay: a reload may bring balancers on ports below 1024, interfaces to answer DHCP on, and addresses to
// add to interfaces. A feature that needs another one adds it here, to configs/bootlab.service and to the Dockerfile; a test compares
// the three.
func Kept(a lab.Appliance) []privilege.Capability {
	keep := []privilege.Capability{privilege.NetBindService, privilege.NetRaw}
	if a.HoldsAddresses() {
		keep = append(keep, privilege.NetAdmin)
	}
	return keep
}

// keptByRoot are what the daemon keeps where the lab file says that it stays root: also what one stays root for, files of others, and
// what libvirt needs to start ssh as root.
func keptByRoot(a lab.Appliance) []privilege.Capability {
	return append(Kept(a), privilege.Chown, privilege.DACOverride, privilege.FOwner, privilege.SysPtrace, privilege.SetPCap)
}

// Drop becomes u. If it is nil, the user stays, and loses what a server does not need.
func Drop(u *privilege.User, l *lab.Lab) error {
	a := l.Appliance
	switch {
	case u == nil && !a.Confine:
		return nil
	case u == nil && os.Geteuid() == 0:
		return privilege.Keep(keptByRoot(a)...)
	case u == nil:
		return privilege.Keep(Kept(a)...)
	}
	if err := u.Own(a.State); err != nil {
		return err
	}
	if err := u.OwnSocket(a.AdminSocket); err != nil {
		return err
	}
	if err := u.Drop(Kept(a)...); err != nil {
		return err
	}
	if err := usable(a.State, u.Name); err != nil {
		return err
	}
	l.Warnings = append(l.Warnings, Unreadable(l)...) // root had no such problem
	return nil
}

// letRead returns the command that lets a group read files, and all below a folder: it changes what open cannot open of them, and of the
// folders above. What else is in these, such as the state folder, stays as it is.
func letRead(gid int, open opener, names ...string) string {
	group, flag := strconv.Itoa(gid), ""
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	var paths []string
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			flag = "-R "
		}
		for open(name) != nil && !slices.Contains(paths, name) {
			paths, name = append(paths, name), filepath.Dir(name)
		}
	}
	slices.Sort(paths)
	return fmt.Sprintf("chgrp %s%s %s && chmod %[1]sg+rX %[3]s", flag, group, strings.Join(paths, " "))
}

// Unreadable warns of files of profiles that the process may not read.
func Unreadable(l *lab.Lab) (warnings lab.Problems) {
	unreadable(l, os.Getegid(), Open, func(p *lab.Profile, key, name, fix string) {
		warnings.Addf(p.PosOf(key), "profiles."+p.Name+"."+key, "%s: %s: %s", name, notRead, fix)
		warnings[len(warnings)-1].Path = name
	})
	return warnings
}

const notRead = "permission denied; machines that need it get an error until the daemon's user may read it"

// unreadable calls found for each file of a profile that open may not read, at a key of it, and says how a group may read it.
func unreadable(l *lab.Lab, gid int, open opener, found func(p *lab.Profile, key, name, fix string)) {
	for _, p := range l.Profiles {
		for _, f := range staticFiles(p) {
			name := filepath.Join(l.Appliance.Files, filepath.FromSlash(f.Text))
			if err := open(name); errors.Is(err, fs.ErrPermission) {
				found(p, f.Key, name, "run "+letRead(gid, open, name))
			}
		}
	}
}

// staticFiles returns the files of a profile that machines fetch unchanged, and its tree, unless their paths are templates.
func staticFiles(p *lab.Profile) (paths []lab.ProfilePath) {
	if p.Tree != "" {
		paths = append(paths, lab.ProfilePath{Key: "tree", Text: p.Tree})
	}
	for _, f := range p.Paths() {
		if f.Sent && !strings.Contains(f.Text, "{{") {
			paths = append(paths, f)
		}
	}
	return paths
}

// readable returns an error if u, as which open opens files, cannot read the lab and these documents of its: a file that only root may read
// could be loaded at the start, but not at a reload.
func readable(u *privilege.User, l *lab.Lab, labPath string, documents []string, open opener) error {
	var names []string
	var first error
	for _, name := range slices.Concat([]string{labPath}, l.Files, documents) {
		if err := open(name); err != nil && !slices.Contains(names, name) {
			names, first = append(names, name), cmp.Or(first, err)
		}
	}
	if first == nil {
		return nil
	}
	return &startError{fmt.Errorf("user %s cannot read what a reload reads: %w", u.Name, first), "run " + letRead(u.GID, open, names...)}
}

// An opener returns an error if a file or folder cannot be opened for reading, or does not answer within regular.Wait.
type opener func(name string) error

// Open returns an error if the process cannot open a file or folder for reading, or if that does not answer within regular.Wait.
func Open(name string) error { return tryOpen(name, func(do func() error) error { return do() }) }

// openAs returns the opener of u, as whom root may open files, and u itself.
func openAs(u *privilege.User) opener {
	return func(name string) error { return tryOpen(name, func(do func() error) error { return asUser(u, do) }) }
}

// tryOpen opens a file as the user that as becomes: inside of Within, which works on a thread of its own.
func tryOpen(name string, as func(do func() error) error) error {
	_, err := regular.Within(name, regular.Wait, func() (struct{}, error) {
		return struct{}{}, as(func() error {
			f, err := os.OpenFile(name, regular.OpenFlags, 0)
			if err != nil {
				return err
			}
			return f.Close()
		})
	})
	return err
}
