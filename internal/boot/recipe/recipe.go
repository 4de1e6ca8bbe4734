package recipe

import (
	"fmt"
	"io/fs"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Recipe is one profile with its templates parsed. It is safe for concurrent use; nothing but its caches changes.
type Recipe struct {
	profile   *lab.Profile
	system    system
	files     *library
	validated validationCache

	kernel, rootfs, image, config *line // of paths; nil where the profile has none
	initrd, documents             []*line
	args                          []*line
}

// Compile parses the templates of p. Documents are read from files, the lab's files folder, each time they are
// rendered: they may change, and be created after the lab file.
func Compile(p *lab.Profile, files fs.FS) (*Recipe, lab.Problems) {
	c := &compiler{profile: p}
	r := &Recipe{
		profile: p, system: systemOf(p.OS), files: &library{files: files, parsed: map[string]parsed{}},
		kernel: c.parse("kernel", p.Kernel), rootfs: c.parse("rootfs", p.Rootfs), image: c.parse("image", p.Image),
		config: c.parse("config", p.Config), initrd: c.parseAll("initrd", p.Initrd), args: c.parseAll("args", p.Args),
		documents: c.parseAll("documents", p.Documents),
	}
	return r, c.problems
}

// Bare returns r without its caches, and it keeps no documents parsed: it takes little memory for as long as a boot needs it, though the
// lab has changed.
func (r *Recipe) Bare() *Recipe {
	return &Recipe{
		profile: r.profile, system: r.system, files: &library{files: r.files.files},
		kernel: r.kernel, rootfs: r.rootfs, image: r.image, config: r.config, initrd: r.initrd, documents: r.documents, args: r.args,
	}
}

// A compiler parses the templates of one profile and collects the errors.
type compiler struct {
	profile  *lab.Profile
	problems lab.Problems
}

// parse returns the template of one key; nil for an empty text.
func (c *compiler) parse(key, text string) *line {
	if text == "" {
		return nil
	}
	t, err := newLine(key, text)
	if err != nil {
		c.problems.Addf(c.profile.PosOf(key), "profiles."+c.profile.Name+"."+key, "%q is not a template: %v", text, keyError(key, err))
	}
	return t
}

func (c *compiler) parseAll(key string, texts []string) (ts []*line) {
	for i, text := range texts {
		ts = append(ts, c.parse(fmt.Sprintf("%s[%d]", key, i), text))
	}
	return ts
}

// Reads returns how many complete reads of the config document one boot may make; 0: any number.
func (r *Recipe) Reads() int {
	if r.profile.ConfigReads > 0 {
		return r.profile.ConfigReads
	}
	return r.system.reads
}

// HasConfig reports whether the profile has a config document.
func (r *Recipe) HasConfig() bool { return r.config != nil }

// IsSeed reports whether the system reads a folder of documents, as cloud-init's NoCloud source does.
func (r *Recipe) IsSeed() bool { return r.system.seed }

// Image returns the path of the profile's image for one host; empty if it has none.
func (r *Recipe) Image(d Data) (string, error) { return r.image.render(&d) }

// resolved returns a copy of the profile with its paths rendered for one host, without arguments.
func (r *Recipe) resolved(d *Data) (*lab.Profile, error) {
	p := *r.profile
	p.Args, p.Documents = nil, nil
	var err error
	for _, path := range []struct {
		line *line
		to   *string
	}{{r.kernel, &p.Kernel}, {r.rootfs, &p.Rootfs}, {r.image, &p.Image}} {
		if *path.to, err = path.line.render(d); err != nil {
			return nil, err
		}
	}
	p.Initrd, err = renderAll(r.initrd, d)
	return &p, err
}
