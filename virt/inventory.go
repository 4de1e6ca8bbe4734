package virt

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"time"
)

// An Inventory is what a hypervisor has, as libvirt defines it.
type Inventory struct {
	Domains  []Definition      // sorted as libvirt lists them
	Networks []string          // XML of libvirt's networks
	Volumes  map[string]Volume // of the domains' disks, by path, or by pool and name as "POOL/NAME"; a disk that is no volume has none
}

// A Definition is the definition of a domain.
type Definition struct {
	Name string
	XML  string // of its next start
}

// stepWait bounds each call of ReadInventory.
const stepWait = 30 * time.Second

// ReadInventory reads what a hypervisor has, and changes nothing. Each call ends after stepWait.
func (p *Processes) ReadInventory(ctx context.Context, uri string) (*Inventory, error) {
	r := p.Open(uri, func([]string) {}).(*remote)
	defer r.Close()
	inv := &Inventory{Volumes: map[string]Volume{}}
	domains, err := bounded(ctx, r.Domains)
	if err != nil {
		return nil, unanswered(uri, err)
	}
	networks, err := bounded(ctx, r.Networks)
	if err != nil {
		return nil, unanswered(uri, err)
	}
	for _, n := range networks {
		inv.Networks = append(inv.Networks, n.XML)
	}
	for _, d := range domains {
		text, err := bounded(ctx, func(ctx context.Context) (string, error) { return r.XML(ctx, d.UUID) })
		if IsUnreachable(err) {
			return nil, unanswered(uri, err)
		}
		if err != nil {
			return nil, fmt.Errorf("read domain %s: %w", d.Name, err)
		}
		inv.Domains = append(inv.Domains, Definition{d.Name, text})
		if err := r.volumesOf(ctx, text, inv.Volumes); err != nil {
			return nil, unanswered(uri, fmt.Errorf("read the disks of domain %s: %w", d.Name, err))
		}
	}
	return inv, nil
}

// bounded makes a call that ends after stepWait.
func bounded[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	return call(ctx)
}

// unanswered adds to the error of a libvirt that does not answer what an admin can do.
func unanswered(uri string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: libvirt is reached but silent, or the machine is down: try virsh -c %s list, and restart libvirtd there", err, uri)
	}
	return err
}

// volumesOf adds the volumes of a domain's disks. The error is that of a hypervisor that does not answer; that of a volume is in it.
func (r *remote) volumesOf(ctx context.Context, domain string, into map[string]Volume) error {
	var d struct {
		Sources []struct {
			File   string `xml:"file,attr"`
			Dev    string `xml:"dev,attr"`
			Pool   string `xml:"pool,attr"`
			Volume string `xml:"volume,attr"`
		} `xml:"devices>disk>source"`
	}
	if err := xml.Unmarshal([]byte(domain), &d); err != nil {
		return fmt.Errorf("not a domain: %w", err)
	}
	for _, s := range d.Sources {
		path := cmp.Or(s.File, s.Dev)
		id := VolumeID{s.Pool, s.Volume}
		key := cmp.Or(path, s.Pool+"/"+s.Volume)
		if _, known := into[key]; known || path == "" && (id.Pool == "" || id.Name == "") {
			continue
		}
		v, err := bounded(ctx, func(ctx context.Context) (Volume, error) {
			if path != "" {
				return r.VolumeAt(ctx, path)
			}
			all, err := r.Volumes(ctx, []VolumeID{id})
			if err != nil {
				return Volume{}, err
			}
			return all[0], nil
		})
		switch {
		case IsUnreachable(err):
			return err
		case err != nil:
			into[key] = Volume{Err: err.Error()}
		default:
			into[key] = v
		}
	}
	return nil
}
