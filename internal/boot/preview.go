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

// ImageConfig renders the config document of a virtual machine that is made from an image. Its hypervisor hands the document over:
// there is no boot to fetch it in, and no token. It is nil if the profile has none.
func (t *Table) ImageConfig(host string) ([]byte, error) {
	r, d, err := t.machine(host)
	if err != nil || !r.HasConfig() {
		return nil, err
	}
	doc, err := r.Config(d, "")
	return doc.Body, err
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

// ConfigFile returns the config document that h's profile names, below appliance.files; empty: none. The file need not exist.
func (t *Table) ConfigFile(h *lab.Host) (string, error) {
	if h.Profile == nil || len(h.MACs) == 0 {
		return "", nil
	}
	r := t.recipes[h.Profile]
	d, err := r.Data(t.lab, h, h.MACs[0], placeholder)
	if err != nil {
		return "", err
	}
	return r.ConfigFile(d)
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
