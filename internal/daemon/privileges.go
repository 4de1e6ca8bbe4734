package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/bootlab/bootlab/internal/boot"
	"github.com/bootlab/bootlab/internal/host/privilege"
	"github.com/bootlab/bootlab/internal/lab"
)

// whom returns the user to become, where the daemon was started as root; nil: it stays who it is.
func whom(a lab.Appliance, log *slog.Logger) (*privilege.User, error) {
	if os.Geteuid() != 0 || a.User == "root" {
		return nil, nil
	}
	u, err := privilege.Lookup(a.User)
	if err != nil && a.UserDefault {
		log.Warn("staying root, since nobody said whom to become", "err", err)
		return nil, nil
	}
	return u, err
}

// dropPrivileges becomes u, unless it is nil. Two capabilities stay: a reload may bring balancers on ports below 1024,
// and interfaces to answer DHCP on.
func dropPrivileges(u *privilege.User, l *lab.Lab, labPath string) error {
	if u == nil {
		return nil
	}
	a := l.Appliance
	if err := u.Own(a.State); err != nil {
		return err
	}
	if err := u.OwnSocket(a.AdminSocket); err != nil {
		return err
	}
	if err := u.Drop(privilege.NetBindService, privilege.NetRaw); err != nil {
		return err
	}
	// What root alone may read could be loaded once, and never again.
	if err := readable(l, labPath); err != nil {
		return fmt.Errorf("user %s cannot read the lab again, so no reload would work: %s: %w", u.Name, letRead(u.GID, labPath, a.Files), err)
	}
	l.Warnings = append(l.Warnings, unreadable(l)...) // root could read them
	return nil
}

// letRead returns the command that lets a group read the folder of the lab and that of its files.
func letRead(gid int, labPath, files string) string {
	group, where := strconv.Itoa(gid), filepath.Dir(labPath)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if below, err := filepath.Rel(where, files); err != nil || !filepath.IsLocal(below) {
		where += " " + files
	}
	return fmt.Sprintf("chgrp -R %s %s && chmod -R g+rX %s", group, where, where)
}

// unreadable warns of what profiles send and who we are now may not read: a machine would hear of it first.
func unreadable(l *lab.Lab) (warnings lab.Problems) {
	for _, p := range l.Profiles {
		for _, f := range sent(p) {
			name := filepath.Join(l.Appliance.Files, filepath.FromSlash(f.Text))
			if err := open(name); errors.Is(err, fs.ErrPermission) {
				warnings.Addf(p.PosOf(f.Key), "profiles."+p.Name+"."+f.Key, "%s may not be read by the daemon's user: what needs it is refused; %s", name, letRead(os.Getegid(), name, name))
				warnings[len(warnings)-1].Path = name
			}
		}
	}
	return warnings
}

// sent returns the files that machines fetch as they are, and the folder of their medium, as far as the lab file tells.
func sent(p *lab.Profile) (paths []lab.ProfilePath) {
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

// readable reports whether the lab and its documents, which were all read before, can be read by who we are now. It opens
// the lab without parsing it again.
func readable(l *lab.Lab, labPath string) error {
	for _, name := range append([]string{labPath}, l.Files...) {
		if err := open(name); err != nil {
			return err
		}
	}
	_, err := boot.Compile(l)
	return err
}

// open tells whether a file, or a folder, can be opened for reading.
func open(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return err
	}
	return f.Close()
}

func canRead(name string) bool { return open(name) == nil }
