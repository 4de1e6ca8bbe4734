package files

import (
	"io/fs"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// Compile returns the files that l allows to be fetched. It does no I/O. A path that a machine fetches is an error, a lab.Problem at the
// profile, if it renders to a path outside the files folder. Of a host for which it does not render, there is no such file.
func Compile(l *lab.Lab) (*Files, error) {
	c := &compiler{
		lab:   l,
		files: &Files{dir: l.Appliance.Files, named: map[string]struct{}{}, secret: map[string]struct{}{}, folded: map[string]string{}},
		users: map[*lab.Profile][]*lab.Host{}, expected: map[string]bool{},
	}
	for _, h := range l.Hosts {
		if h.Profile != nil && len(h.MACs) > 0 {
			c.users[h.Profile] = append(c.users[h.Profile], h)
		}
	}
	for _, p := range l.Profiles {
		c.profile(p)
	}
	c.refuseUnprotected()
	c.keyFiles()
	for _, i := range l.Images {
		c.files.images = append(c.files.images, i.Path)
	}
	for name := range c.files.named {
		c.files.folded[strings.ToLower(name)] = name
	}
	return c.files, c.problems.Err()
}

// A compiler collects what Compile finds.
type compiler struct {
	lab      *lab.Lab
	files    *Files
	users    map[*lab.Profile][]*lab.Host // the hosts that boot each profile
	anywhere []anywhere
	expected map[string]bool // that is in files.ifMissing
	problems lab.Problems
}

// An anywhere is the name of a document whose template has no form by which it could be known.
type anywhere struct {
	profile *lab.Profile
	path    recipe.Path
	name    string
}

func (c *compiler) profile(p *lab.Profile) {
	if p.Tree != "" && !slices.Contains(c.files.trees, p.Tree) {
		c.files.trees = append(c.files.trees, p.Tree)
	}
	r, problems := recipe.Compile(p, nil) // no document is read
	if c.problems = append(c.problems, problems...); len(problems) > 0 {
		return
	}
	for _, path := range r.Paths() {
		if len(path.Literals()) == 1 {
			c.add(p, path, path.Text)
			continue
		}
		if !path.Sent {
			c.pattern(path)
		} else {
			c.files.begins = append(c.files.begins, path.Literals()[0])
		}
		c.render(p, r, path)
	}
}

// add allows a path that machines fetch, and marks any other as secret.
func (c *compiler) add(p *lab.Profile, f recipe.Path, rendered string) bool {
	name := path.Clean(rendered)
	switch {
	case !fs.ValidPath(name) || name == ".":
		c.problem(p, f, "%q is not below the files folder: want a path relative to it", rendered)
		return false
	case f.Sent:
		c.files.named[name] = struct{}{}
	default:
		c.secret(name)
		if formless(f) {
			c.anywhere = append(c.anywhere, anywhere{p, f, name})
		}
	}
	return true
}

// mostExpected bounds the files that are looked for: one for each machine, as of a lab of thousands, would be.
const mostExpected = 1000

// expect notes a file that machines need. The loader has noted those whose path has no template, or that of the role alone.
func (c *compiler) expect(p *lab.Profile, f recipe.Path, rendered string) {
	if len(c.files.ifMissing) >= mostExpected {
		return
	}
	name := filepath.Join(c.lab.Appliance.Files, filepath.FromSlash(rendered))
	if _, roleOnly := f.ForRole(""); roleOnly || c.expected[name] {
		return
	}
	c.expected[name] = true
	c.files.ifMissing = append(c.files.ifMissing, c.lab.Missing(lab.FileAt{Pos: p.PosOf(f.Key), Key: "profiles." + p.Name + "." + f.Key, Path: name}))
}

// refuseUnprotected reports the documents that become files for everybody once their host is removed: they are in such a folder, and their
// template has no form.
func (c *compiler) refuseUnprotected() {
	for _, a := range c.anywhere {
		for _, dir := range append([]string{Public}, c.files.trees...) {
			if strings.HasPrefix(a.name, dir+"/") {
				c.problem(a.profile, a.path, "%q may be any file, and is %s for a host: everybody could fetch it once the host is removed: want a document outside of %s", a.path.Text, a.name, dir)
			}
		}
	}
}

// secret marks a file as secret, by its path relative to the files folder.
func (c *compiler) secret(name string) {
	if _, known := c.files.secret[strings.ToLower(name)]; !known {
		c.files.secretNames = append(c.files.secretNames, name)
	}
	c.files.secret[strings.ToLower(name)] = struct{}{}
}

func (c *compiler) problem(p *lab.Profile, f recipe.Path, format string, args ...any) {
	c.problems.Addf(p.PosOf(f.Key), "profiles."+p.Name+"."+f.Key, format, args...)
}

// action stands for an action of a template; it is never part of a path.
const action = "\x00"

// form returns a template with its actions replaced.
func form(f recipe.Path) string { return path.Clean(strings.Join(f.Literals(), action)) }

// formless reports whether a template could be any path.
func formless(f recipe.Path) bool { return strings.Trim(form(f), action) == "" }

// pattern records the form of the document names that a template renders to, so that the document of a machine that the lab
// does not list is secret too. A template that could be any path has no pattern.
func (c *compiler) pattern(f recipe.Path) {
	if formless(f) {
		return
	}
	text := form(f)
	literal, _, _ := strings.Cut(text, action)
	c.files.patterns = append(c.files.patterns, pattern{
		regexp.MustCompile("(?i)^" + strings.ReplaceAll(regexp.QuoteMeta(text), action, ".*") + "$"), path.Clean(path.Dir(literal + "x")),
	})
}

// render adds the path that f renders to for every machine that boots p, with each of its NICs.
func (c *compiler) render(p *lab.Profile, r *recipe.Recipe, f recipe.Path) {
	_, roleOnly := f.ForRole("")
	roles := map[string]bool{}
	for _, h := range c.users[p] {
		if roleOnly && roles[h.WrittenRole()] { // thousands of workers share one document
			continue
		}
		roles[h.WrittenRole()] = true
		for _, mac := range h.MACs {
			rendered, err := c.renderFor(r, f, h, mac)
			switch {
			case err == nil && c.add(p, f, rendered):
				c.expect(p, f, rendered)
			case err != nil: // nothing to fetch; the boot table refuses the host
			default:
				return
			}
		}
	}
	for _, n := range c.lab.Networks {
		for _, pool := range n.Pools {
			if pool.Profile == p {
				c.renderPool(p, r, f, pool)
			}
		}
	}
}

func (c *compiler) renderFor(r *recipe.Recipe, f recipe.Path, h *lab.Host, mac lab.MAC) (string, error) {
	d, _ := r.Data(c.lab, h, mac, "") // without a document there is no URL of it, which no path needs
	return f.Render(d)
}

// renderPool adds the path that f renders to for the machines of a pool. They are unknown before they boot, so a file that they
// fetch must have the same path for all: it is rendered for two machines that have nothing in common.
func (c *compiler) renderPool(p *lab.Profile, r *recipe.Recipe, f recipe.Path, pool *lab.Pool) {
	var rendered [2]string
	for i, mac := range []lab.MAC{{0x02, 0, 0, 0, 0, 1}, {0x52, 0x54, 0x11, 0x22, 0x33, 0x44}} {
		var err error
		machine := c.lab.PoolHost(pool, mac, []netip.Addr{pool.Range.First, pool.Range.Last}[i])
		if rendered[i], err = c.renderFor(r, f, machine, mac); err != nil {
			return // nothing to fetch; the boot table refuses the machines
		}
	}
	switch {
	case !f.Sent && formless(f) && f.DependsOnMachine():
		c.problem(p, f, "%q may be any file for the machines of pool %s: want a fixed folder or extension", f.Text, pool.Name)
	case rendered[0] == rendered[1]:
		if c.add(p, f, rendered[0]) {
			c.expect(p, f, rendered[0])
		}
	case f.Sent:
		c.problem(p, f, "%q differs between the machines of pool %s: want one path for all of them", f.Text, pool.Name)
	}
}

// keyFiles marks the files of passwords and keys, the state of the daemon and the files of the lab itself, which may hold passwords, as secret.
func (c *compiler) keyFiles() {
	for _, file := range slices.Concat(c.lab.SecretFiles(), c.lab.Files) {
		if rel, err := filepath.Rel(c.lab.Appliance.Files, file); err == nil && filepath.IsLocal(rel) {
			c.secret(filepath.ToSlash(rel))
		} else {
			c.files.outside = append(c.files.outside, file)
		}
	}
}
