package boot

import (
	"context"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Report is called when a machine tells what it is, in the query of a URL. It is believed of the address that this MAC
// holds alone; in a network whose addresses another DHCP server gives, of any. News are told to the event bus.
func (d *Desk) Report(ctx context.Context, mac lab.MAC, query string, from netip.Addr) error {
	t := d.deps.Table()
	if err := d.mayReport(t, mac, from); err != nil {
		d.tellRefused(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: "report", Err: err.Error()})
		return err
	}
	facts := discovered.ParseFacts(query)
	news, err := d.deps.Unknown.Report(ctx, mac, from, facts)
	switch {
	case err != nil:
		return later("keep what "+mac.String()+" tells", err)
	case news:
		d.deps.Events.Record(event.Event{Kind: event.MachineReported, MAC: mac, Addr: from, Detail: summary(facts)})
	}
	return nil
}

func (d *Desk) mayReport(t *Table, mac lab.MAC, from netip.Addr) error {
	n := t.lab.NetworkOf(from)
	if n == nil {
		return forbidden("asked from "+from.String()+", which is in no network of the lab", nil)
	}
	if n.DHCP != lab.DHCPServer {
		return nil
	}
	if holds, ok := d.addrOf(t, mac); !ok || holds != from {
		return forbidden("asked from "+from.String()+", which "+mac.String()+" does not hold", nil)
	}
	return nil
}

// summary is what people know a machine by.
func summary(f discovered.Facts) string {
	var parts []string
	for _, s := range []string{f.Manufacturer, f.Product, f.Serial, f.UUID} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ", ")
}
