package boot

import (
	"fmt"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Preview is what one host would get at its next boot. The token in it is a placeholder.
type Preview struct {
	Script []byte
	Config *recipe.Document // nil: no config document, or it does not exist yet
	Reason string           // why Config is nil though the profile has one
	// Documents are all that the machine may fetch by name: the config document first, then those of the profile and of the recipe.
	// Documents that do not exist yet are missing.
	Documents []recipe.Document
}

// Image returns the path of the image that the virtual machine of that host is made from, relative to the files folder.
func (t *Table) Image(host string) (string, error) {
	r, d, err := t.machine(host)
	if err != nil {
		return "", err
	}
	return r.Image(d)
}

// ImageDocuments renders the config document of a virtual machine that is made from an image, or all files of its cloud-init seed that
// are not empty. Its hypervisor hands them over: there is no boot to fetch them in, and no token. There are none if the profile has no
// config.
func (t *Table) ImageDocuments(host string) (all []recipe.Document, err error) {
	r, d, err := t.machine(host)
	if err != nil || !r.HasConfig() {
		return nil, err
	}
	names := []string{""}
	if r.IsSeed() {
		names = r.Names(d)
	}
	for _, name := range names {
		doc, err := r.Config(d, name)
		if err != nil {
			return nil, err
		}
		if len(doc.Body) > 0 {
			all = append(all, doc)
		}
	}
	return all, nil
}

// machine returns what the image of a host is rendered from. It takes a name, because the caller may still work with the lab before
// this one.
func (t *Table) machine(host string) (*recipe.Recipe, recipe.Data, error) {
	h := t.lab.Host(host)
	if h == nil || h.Profile == nil || len(h.MACs) == 0 {
		return nil, recipe.Data{}, fmt.Errorf("%s has no profile in this lab", host)
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], "")
	return r, d, err
}

// DocumentFiles returns the documents that h's profile names, below appliance.files: the config document first, empty if there is none. The
// files need not exist.
func (t *Table) DocumentFiles(h *lab.Host) ([]string, error) {
	if h.Profile == nil || len(h.MACs) == 0 {
		return nil, nil
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err != nil {
		return nil, err
	}
	return r.DocumentFiles(d)
}

// Preview renders what h gets while it is not installed. The error is why its request would be refused.
func (t *Table) Preview(h *lab.Host) (Preview, error) {
	if h.Profile == nil || len(h.MACs) == 0 {
		return Preview{}, nil
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err == nil {
		err = firstFault(r, d)
	}
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	if h.Profile.NetBoots() {
		name := lab.ScriptName
		if h.Chain == lab.ChainGRUB {
			name = lab.GRUBName
		}
		if p.Script, err = loaderOf(name).script(r, d); err != nil {
			return Preview{}, err
		}
	}
	for _, name := range r.Names(d) {
		doc, err := r.Config(d, name)
		if err == nil {
			p.Documents = append(p.Documents, doc)
		} else if p.Reason == "" {
			p.Reason = err.Error()
		}
	}
	if h.Profile.Config == "" {
		return p, nil
	}
	doc, err := r.Config(d, "")
	if err != nil {
		p.Reason = err.Error()
		return p, nil
	}
	p.Config = &doc
	return p, nil
}
