package load

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/lab"
)

// filePath returns a path below appliance.files as a profile writes it, checked and cleaned. Templates are only checked
// to be templates: what they become is known per host.
func (r *resolver) filePath(v *scalar[text], key string) string {
	if !v.ok() {
		return ""
	}
	p := string(v.V)
	switch {
	case strings.Contains(p, "://"):
		r.fail(v.spot, key, "%q is a URL: want a path below appliance.files, and the URL in images, from where bootlab images pull fetches it", p)
	case strings.Contains(p, "{{"):
		r.template(v, key)
		return p
	case strings.HasPrefix(p, "/"):
		r.fail(v.spot, key, "%q is absolute: want a path relative to appliance.files", p)
	case strings.Contains(p, "\\") || strings.ContainsRune(p, 0):
		r.fail(v.spot, key, "%q is not a path: want one with slashes, relative to appliance.files", p)
	case path.Clean(p) == ".." || strings.HasPrefix(path.Clean(p), "../"):
		r.fail(v.spot, key, "%q is outside appliance.files: want a path below it", p)
	}
	return path.Clean(p)
}

// filePaths returns the valid paths of a list.
func (r *resolver) filePaths(l scalars[text], key string) (paths []string) {
	for i := range l.Items {
		if p := r.filePath(&l.Items[i], fmt.Sprintf("%s[%d]", key, i)); p != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// template reports text that is not a template. Names are looked up when it is rendered.
func (r *resolver) template(v *scalar[text], key string) {
	if !v.ok() || !strings.Contains(string(v.V), "{{") {
		return
	}
	t := parse.New(key)
	t.Mode = parse.SkipFuncCheck
	if _, err := t.Parse(string(v.V), "", "", map[string]*parse.Tree{}); err != nil {
		_, reason, _ := strings.Cut(strings.TrimPrefix(err.Error(), "template: "), ":1: ")
		r.fail(v.spot, key, "%q is not a template: %s", v.V, lab.TemplateReason(reason))
	}
}

// checkFiles warns of missing files of profiles, balancers and secrets. Who reads the files of dns warns of those.
func (r *resolver) checkFiles() {
	for _, p := range r.lab.Profiles {
		r.profileFiles(p)
	}
	for _, e := range r.raw.Balancers.Entries {
		if tls := e.V.TLS.V; tls != nil && tls.ACME.V != nil {
			r.checkFile(&tls.ACME.V.CAFile, "balancers."+e.Name+".tls.acme.ca_file", r.path(string(tls.ACME.V.CAFile.V)))
		}
		if tls := e.V.BackendTLS.V; tls != nil {
			r.checkFile(&tls.CAFile, "balancers."+e.Name+".backend_tls.ca_file", r.path(string(tls.CAFile.V)))
		}
		r.checkFile(&e.V.Check.CAFile, "balancers."+e.Name+".check.ca_file", r.path(string(e.V.Check.CAFile.V)))
	}
	if store := r.raw.Appliance.Store.Long; store != nil {
		r.checkFile(&store.CAFile, "appliance.store.ca_file", r.lab.Appliance.Store.CAFile)
	}
	for _, c := range r.lab.Certificates {
		r.checkNamed(c)
	}
	r.checkStreams()
	r.checkKubeconfigs()
	r.checkSecrets()
}

// checkStreams checks the documents that images are still to be fetched by.
func (r *resolver) checkStreams() {
	for i, e := range r.raw.Images.Entries {
		image := r.lab.Images[i]
		if filepath.IsAbs(image.Stream) && !r.exists(filepath.Join(r.lab.Appliance.Files, filepath.FromSlash(image.Path))) {
			r.checkFile(&e.V.Stream, "images."+e.Name+".stream", image.Stream)
		}
	}
}

// certificate adds the file of a certificate to those of the lab. Who serves it reads it.
func (r *resolver) certificate(v *scalar[text], key string) {
	if v.ok() {
		r.lab.Certificates = append(r.lab.Certificates, lab.FileAt{Pos: r.pos(v.spot), Key: key, Path: r.path(string(v.V))})
	}
}

// checkSecrets checks each file once, as many hosts share one.
func (r *resolver) checkSecrets() {
	asked := map[[2]string]bool{}
	for i, e := range r.raw.Hosts.Entries {
		raw, b := e.V.BMC.V, r.lab.Hosts[i].BMC
		if raw == nil || asked[[2]string{b.PasswordFile, b.CAFile}] {
			continue
		}
		asked[[2]string{b.PasswordFile, b.CAFile}] = true
		r.checkFile(&raw.PasswordFile, hostKey(e, "bmc.password_file"), b.PasswordFile)
		r.checkFile(&raw.CAFile, hostKey(e, "bmc.ca_file"), b.CAFile)
	}
}

// profileFiles checks the files that a profile names: one for a path, or one for each role if the role is its only template. Those of other
// templates are known once they are rendered (package boot/files).
func (r *resolver) profileFiles(p *lab.Profile) {
	for _, f := range append([]lab.ProfilePath{{Key: "tree", Text: p.Tree}}, p.Paths()...) {
		pos, written := p.Keys[f.Key]
		if f.Text == "" || !written { // what follows from the tree is checked with it
			continue
		}
		roles := []string{""}
		if strings.Contains(f.Text, "{{") {
			roles = r.rolesOf(p)
		}
		for _, role := range roles {
			if name, ok := f.ForRole(role); ok {
				missing := r.checkNamed(lab.FileAt{Pos: pos, Key: "profiles." + p.Name + "." + f.Key, Path: r.inFiles(name)})
				missing.Message += r.synonymFile(f, role)
			}
		}
	}
}

func (r *resolver) inFiles(name string) string {
	return filepath.Join(r.lab.Appliance.Files, filepath.FromSlash(name))
}

// synonymFile names a file that is there for another word of a role; empty: the file of the role itself is there, or none is.
func (r *resolver) synonymFile(f lab.ProfilePath, role string) string {
	if own, _ := f.ForRole(role); role == "" || r.exists(r.inFiles(own)) {
		return ""
	}
	for _, word := range slices.Sorted(maps.Keys(roleSynonyms)) {
		name, _ := f.ForRole(word)
		if word != role && roleSynonyms[word] == canonicalRole(role) && r.exists(r.inFiles(name)) {
			return fmt.Sprintf("; %s is there: a template sees the role as the host has it, so write role: %s, or rename the file", name, word)
		}
	}
	return ""
}

// rolesOf returns the roles of the hosts that boot p, as written, sorted; without those that memberRole reports as misspelled.
func (r *resolver) rolesOf(p *lab.Profile) []string {
	roles := map[string]bool{}
	for _, h := range r.lab.Hosts {
		misspelled := h.Cluster != nil && h.Cluster.Kind != lab.Plain && !h.Cluster.Names && nearRole(h) != ""
		if h.Profile == p && h.WrittenRole() != "" && !misspelled {
			roles[h.WrittenRole()] = true
		}
	}
	return slices.Sorted(maps.Keys(roles))
}

func (r *resolver) checkFile(v *scalar[text], key, name string) {
	if v.ok() {
		r.checkNamed(lab.FileAt{Pos: r.pos(v.spot), Key: key, Path: name})
	}
}

// checkNamed warns of a file that does not exist, and keeps the warning, which it returns, for when it is removed later.
func (r *resolver) checkNamed(f lab.FileAt) *lab.Problem {
	missing := r.lab.Missing(f)
	r.lab.IfMissing = append(r.lab.IfMissing, missing)
	if !r.exists(f.Path) {
		r.lab.Warnings = append(r.lab.Warnings, missing)
	}
	return missing
}

func (r *resolver) exists(name string) bool {
	if r.o.FileExists != nil {
		return r.o.FileExists(name)
	}
	_, err := regular.Stat(name)
	return err == nil || errors.Is(err, regular.ErrNoAnswer) || errors.Is(err, fs.ErrPermission) // the daemon reports files that it may not read
}
