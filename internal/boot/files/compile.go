package files

import (
	"io/fs"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/bootlab/bootlab/internal/lab"
)

// compiler collects what Compile finds.
type compiler struct {
	lab      *lab.Lab
	files    *Files
	users    map[*lab.Profile][]*lab.Host
	problems lab.Problems
}

// usersOf returns the hosts of each profile that has a path to render.
func usersOf(l *lab.Lab) map[*lab.Profile][]*lab.Host {
	users := map[*lab.Profile][]*lab.Host{}
	for _, p := range l.Profiles {
		if slices.ContainsFunc(p.Paths(), rendered) {
			users[p] = nil
		}
	}
	if len(users) == 0 {
		return nil
	}
	for _, h := range l.Hosts {
		if hosts, ok := users[h.Profile]; ok {
			users[h.Profile] = append(hosts, h)
		}
	}
	return users
}

// rendered reports whether a path has to be rendered for every host.
func rendered(f lab.ProfilePath) bool {
	return strings.Contains(f.Text, "{{") && (f.Sent || mayBePublic(f.Text))
}

func (c *compiler) profile(p *lab.Profile) {
	if p.Tree != "" && !slices.Contains(c.files.trees, p.Tree) {
		c.files.trees = append(c.files.trees, p.Tree)
	}
	for _, f := range p.Paths() {
		set := c.files.named
		if !f.Sent {
			set = c.files.denied
			c.secret(f.Text)
		}
		switch {
		case !strings.Contains(f.Text, "{{"):
			c.add(set, p, f.Key, f.Text)
		case rendered(f):
			c.render(set, p, f.Key, f.Text)
		}
	}
}

var action = regexp.MustCompile(`\{\{.*?\}\}`)

// secret keeps what the paths that a template renders to look like. One that could be any path is no help.
func (c *compiler) secret(text string) {
	if action.ReplaceAllString(text, "") == "" {
		return
	}
	var pattern strings.Builder
	pattern.WriteString("^")
	for i, literal := range action.Split(strings.TrimPrefix(text, "./"), -1) {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(literal))
	}
	pattern.WriteString("$")
	c.files.secret = append(c.files.secret, regexp.MustCompile(pattern.String()))
}

// mayBePublic reports whether a template can render to a path below public/. The paths of config documents hold actions
// more often than not, and only those need rendering for every host.
func mayBePublic(text string) bool {
	literal, _, _ := strings.Cut(text, "{{")
	literal = strings.TrimPrefix(literal, "./")
	return strings.HasPrefix(literal, Public+"/") || strings.HasPrefix(Public+"/", literal)
}

func (c *compiler) add(set map[string]struct{}, p *lab.Profile, key, text string) bool {
	name := path.Clean(text)
	if !fs.ValidPath(name) || name == "." {
		c.problems.Addf(p.PosOf(key), "profiles."+p.Name+"."+key, "%q is not below the files folder: want a path relative to it", text)
		return false
	}
	set[name] = struct{}{}
	return true
}

// A hostData is lab.Host as templates see it, with the MAC that it boots from.
type hostData struct {
	*lab.Host
	MAC lab.MAC
}

// A pathData is what the template of a path sees.
type pathData struct {
	Host    hostData
	Cluster *lab.Cluster
	Network *lab.Network
	Profile *lab.Profile
}

func dataOf(h *lab.Host) pathData {
	d := pathData{Host: hostData{Host: h}, Cluster: h.Cluster, Network: h.Network, Profile: h.Profile}
	if len(h.MACs) > 0 {
		d.Host.MAC = h.MACs[0]
	}
	return d
}

// distinct returns one host for each path that text can render to. Most templates name a host by its role alone, and
// rendering one of those for 10,000 workers would be a tenth of a reload.
func distinct(hosts []*lab.Host, text string) []*lab.Host {
	other := strings.ReplaceAll(text, "{{.Host.Role}}", "")
	if strings.Contains(other, "{{") {
		return hosts
	}
	var one []*lab.Host
	seen := map[string]bool{}
	for _, h := range hosts {
		if !seen[h.Role] {
			seen[h.Role] = true
			one = append(one, h)
		}
	}
	return one
}

// render adds what text renders to for every machine that boots p.
func (c *compiler) render(set map[string]struct{}, p *lab.Profile, key, text string) {
	where := "profiles." + p.Name + "." + key
	tmpl, err := template.New(where).Option("missingkey=error").Parse(text)
	if err != nil {
		c.problems.Addf(p.PosOf(key), where, "%q is not a template: %v", text, err)
		return
	}
	var b strings.Builder
	for _, h := range distinct(c.users[p], text) {
		b.Reset()
		if err := tmpl.Execute(&b, dataOf(h)); err != nil {
			c.problems.Addf(p.PosOf(key), where, "%q does not render for host %s: %v", text, h.Name, err)
			return
		}
		if !c.add(set, p, key, b.String()) {
			return
		}
	}
	c.renderGuests(set, tmpl, p, key, text)
}

// renderGuests adds what text renders to for the guests of pools that boot p. Guests are not known before they come, so
// the path must be the same for all of a pool: two that share nothing stand for them.
func (c *compiler) renderGuests(set map[string]struct{}, tmpl *template.Template, p *lab.Profile, key, text string) {
	for _, pool := range c.poolsOf(p) {
		var got [2]strings.Builder
		for i, m := range []lab.MAC{{0x02, 0, 0, 0, 0, 1}, {0x52, 0x54, 0x11, 0x22, 0x33, 0x44}} {
			guest := c.lab.Guest(pool, m, []netip.Addr{pool.Range.First, pool.Range.Last}[i])
			if err := tmpl.Execute(&got[i], dataOf(guest)); err != nil {
				c.problems.Addf(p.PosOf(key), "profiles."+p.Name+"."+key, "%q does not render for guests of pool %s: %v", text, pool.Name, err)
				return
			}
		}
		if got[0].String() != got[1].String() {
			c.problems.Addf(p.PosOf(key), "profiles."+p.Name+"."+key,
				"%q differs from guest to guest of pool %s: want a path that is the same for all of them", text, pool.Name)
			return
		}
		c.add(set, p, key, got[0].String())
	}
}

func (c *compiler) poolsOf(p *lab.Profile) (pools []*lab.Pool) {
	for _, n := range c.lab.Networks {
		for _, pool := range n.Pools {
			if pool.Profile == p {
				pools = append(pools, pool)
			}
		}
	}
	return pools
}

// secrets denies the files that *_file keys name, where they stand below the files folder.
func (c *compiler) secrets() {
	c.deny(c.lab.Appliance.Store.CAFile)
	for _, h := range c.lab.Hosts {
		if h.BMC != nil {
			c.deny(h.BMC.PasswordFile)
		}
	}
}

func (c *compiler) deny(file string) {
	if file == "" {
		return
	}
	rel, err := filepath.Rel(c.lab.Appliance.Files, file)
	if err == nil && filepath.IsLocal(rel) {
		c.files.denied[filepath.ToSlash(rel)] = struct{}{}
	}
}
