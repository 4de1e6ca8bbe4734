package boot

import (
	"sync"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// A rendering is what a document is rendered from.
type rendering struct {
	profile *lab.Profile // of one lab
	recipe  *recipe.Recipe
	data    recipe.Data
}

// A renderings holds what the scripts of boots were rendered from, so that a boot gets the documents that its script names though the lab is
// reloaded meanwhile. It is in memory only, as labs hold secrets: after a restart of the daemon, documents are those of the lab in force.
type renderings struct {
	mu    sync.Mutex
	boots map[lab.MAC]map[string]rendering // by NIC and token: a host may get another name
}

// maxRendered bounds the NICs of renderings, at a KiB for each boot. A full set is emptied.
const maxRendered = 16384

// keep records what a script for mac was rendered from. current reports whether a token is of a boot that is requested or under way; the
// others of mac are dropped.
func (r *renderings) keep(mac lab.MAC, token string, from rendering, current func(token string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boots == nil || len(r.boots) >= maxRendered {
		r.boots = map[lab.MAC]map[string]rendering{}
	}
	of := r.boots[mac]
	if of == nil {
		of = map[string]rendering{}
		r.boots[mac] = of
	}
	for other := range of {
		if !current(other) {
			delete(of, other)
		}
	}
	of[token] = from
}

// of returns what the script of a boot was rendered from, if it is not of that profile.
func (r *renderings) of(mac lab.MAC, token string, now *lab.Profile) (from rendering, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, ok = r.boots[mac][token]
	return from, ok && from.profile != now
}

// renderingOf returns what a document of a boot is rendered from: the lab that its script is from, or the one in force if that has not changed
// or only it has a document of this name.
func (s *Service) renderingOf(t *Table, c client, token, name string) (rendering, error) {
	from, ok := s.rendered.of(c.mac, token, c.host.Profile)
	if ok && from.has(name) {
		return from, nil
	}
	return t.rendering(c, token)
}

// rendering returns what the documents of a boot are rendered from by the lab of t.
func (t *Table) rendering(c client, token string) (rendering, error) {
	data, err := c.recipe.Data(t.lab, c.host, c.mac, token)
	return rendering{c.host.Profile, c.recipe, data}, err
}

// has reports whether there is a document of that name; empty: the config document.
func (r rendering) has(name string) bool { return r.recipe.Knows(r.data, name) }

// repaired renders by the lab of t what the lab of the boot could not, for the reason that is returned if t has no such document, or one
// whose reads are counted otherwise.
func (t *Table) repaired(c client, token, name string, counts bool, why error) (recipe.Document, error) {
	now, err := t.rendering(c, token)
	if err != nil || !now.has(name) || now.recipe.Counts(now.data, name) != counts {
		return recipe.Document{}, why
	}
	return render(now.recipe, now.data, name)
}
