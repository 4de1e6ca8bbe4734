package virt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// text returns the XML of a definition of the machine, with the changes of the lab file.
func (m *machine) text(d *libvirtxml.Domain) (string, error) {
	text, err := d.Marshal()
	if err != nil || len(m.vm.XML) == 0 {
		return text, err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return "", err
	}
	before := identity(doc.Root())
	for i := range m.vm.XML {
		if err := changeXML(doc.Root(), &m.vm.XML[i]); err != nil {
			return "", &changeError{&m.vm.XML[i], err}
		}
		for what, is := range identity(doc.Root()) {
			if is != before[what] {
				return "", &changeError{&m.vm.XML[i], fmt.Errorf("it changes %s: the lab file sets that elsewhere, and bootlab knows its machines by it", what)}
			}
		}
	}
	doc.Indent(2)
	return doc.WriteToString()
}

// A changeError is the error of one change of the lab file.
type changeError struct {
	change *lab.XMLChange
	err    error
}

// Error implements error.
func (e *changeError) Error() string { return fmt.Sprintf("vm.xml, at %q: %s", e.change.At, e.err) }

// Unwrap returns the cause.
func (e *changeError) Unwrap() error { return e.err }

// identity returns what changes must leave as it is: that by which bootlab knows its machines and counts their memory.
func identity(domain *etree.Element) map[string]string {
	all := map[string]string{"the root element": domain.Tag, "the domain type": domain.SelectAttrValue("type", "")}
	for _, tag := range []string{"name", "uuid", "metadata", "memory"} {
		all["<"+tag+">"] = ""
		for _, e := range domain.SelectElements(tag) {
			doc := etree.NewDocumentWithRoot(e.Copy())
			doc.Unindent()
			text, _ := doc.WriteToString() // to memory
			all["<"+tag+">"] += text
		}
	}
	return all
}

// changeXML makes one change.
func changeXML(domain *etree.Element, c *lab.XMLChange) error {
	path, err := etree.CompilePath(c.At)
	if err != nil {
		return fmt.Errorf("not a path: %w", err)
	}
	found := domain.FindElementsPath(path)
	if len(found) == 0 {
		return errors.New("the domain has no such element: bootlab plan HOST shows it")
	}
	var add []*etree.Element
	if c.Add != "" {
		if add, err = elements(c.Add); err != nil {
			return err
		}
	}
	for _, e := range found {
		if c.Remove {
			if e == domain {
				return errors.New("the domain itself cannot be removed")
			}
			e.Remove()
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.Set)) {
			e.CreateAttr(name, c.Set[name])
		}
		for _, a := range add {
			e.AddChild(a.Copy())
		}
	}
	return nil
}

// errAdd is wrapped by the errors that are about add, and not about at.
var errAdd = errors.New("add is not XML")

// elements reads a text of elements.
func elements(text string) ([]*etree.Element, error) {
	doc := etree.NewDocument()
	doc.ReadSettings.ValidateInput = true
	if err := doc.ReadFromString("<add>" + text + "</add>"); err != nil {
		return nil, fmt.Errorf("%w: %w", errAdd, err)
	}
	root := doc.Root()
	if len(doc.ChildElements()) != 1 || len(root.ChildElements()) == 0 || strings.TrimSpace(root.Text()) != "" {
		return nil, fmt.Errorf("%w: want one element or several", errAdd)
	}
	return root.ChildElements(), nil
}

// changed returns a definition of the machine with the changes of the lab file, as far as libvirtxml knows their elements.
func (m *machine) changed(d *libvirtxml.Domain) (*libvirtxml.Domain, error) {
	if len(m.vm.XML) == 0 {
		return d, nil
	}
	text, err := m.text(d)
	if err != nil {
		return nil, err
	}
	var with libvirtxml.Domain
	if err := with.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read the domain that vm.xml makes: %w", err)
	}
	return &with, nil
}

// compileXML checks the changes of the lab file, at their places in it.
func (m *machine) compileXML(problems *lab.Problems) {
	if len(m.vm.XML) == 0 || m.vm.Hypervisor == nil || len(m.attach) != len(m.host.Interfaces()) {
		return // without, or another error is reported already
	}
	d := m.definition()
	d.Metadata = &libvirtxml.DomainMetadata{XML: metadata{Lab: m.table.lab, Host: m.host.Name}.xml()}
	_, err := m.changed(d)
	var change *changeError
	switch {
	case errors.As(err, &change):
		pos := change.change.Pos
		if errors.Is(err, errAdd) {
			pos = cmp.Or(change.change.AddPos, pos)
		}
		problems.Addf(pos, "hosts."+m.host.Name+".vm.xml", "at %q: %s", change.change.At, change.err)
	case err != nil:
		problems.Addf(m.host.Pos, "hosts."+m.host.Name+".vm.xml", "%s", err)
	}
}
