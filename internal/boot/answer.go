package boot

import (
	"context"
	"net/netip"

	"github.com/bootlab/bootlab/internal/boot/recipe"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Answer renders the config document of the machine that has one of these MACs and asks from that address. It is for
// installers that can be told no token: Proxmox' learns an address from DHCP, the same for all, and says what it found in
// its machine. Everything else is as in Config: a boot is under way, the document is not read up.
func (d *Desk) Answer(ctx context.Context, macs []lab.MAC, from netip.Addr) (*Document, error) {
	t := d.deps.Table()
	for _, mac := range macs {
		h, r, err := d.owner(t, mac, from)
		if err != nil || !r.Answers() {
			continue
		}
		a, err := d.answer(ctx, t, h, r, mac, from)
		if err != nil {
			d.refused(t, mac, from, lab.PathAnswer, err, "")
		}
		return a, err
	}
	err := forbidden("no machine of the lab that asks for an answer has one of these NICs and this address", nil)
	e := event.Event{Kind: event.ConfigRefused, Addr: from, Detail: lab.PathAnswer, Err: err.Error()}
	if len(macs) > 0 {
		e.MAC = macs[0]
	}
	d.tellRefused(t, e)
	return nil, err
}

func (d *Desk) answer(ctx context.Context, t *Table, h *lab.Host, r *recipe.Recipe, mac lab.MAC, from netip.Addr) (*Document, error) {
	token, err := d.deps.Installs.Token(ctx, h)
	if err != nil {
		return nil, forbidden("not for "+h.Name+" now", err)
	}
	data, err := r.Data(t.lab, h, mac, token)
	if err != nil {
		return nil, later("render the config document of "+h.Name, err)
	}
	name, err := r.ConfigName(data)
	if err != nil {
		return nil, later("render the config document of "+h.Name, err)
	}
	return d.config(t, mac, token, name, from)
}
