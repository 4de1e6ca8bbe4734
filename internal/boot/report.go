package boot

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// Done is called when an installer reports that it is done.
func (s *Service) Done(ctx context.Context, mac lab.MAC, token string, from netip.Addr) error {
	t := s.deps.Table()
	a, err := s.owner(t, mac, from)
	if err == nil {
		err = s.done(ctx, a.host, token)
	}
	if err != nil {
		s.refused(t, mac, from, "done", err, token)
	}
	return err
}

func (s *Service) done(ctx context.Context, h *lab.Host, token string) error {
	err := s.deps.Installs.Confirm(ctx, h, token)
	if err == nil {
		err = s.deps.Installs.Done(ctx, h, token)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, install.ErrToken), errors.Is(err, install.ErrState):
		return forbidden(notThisBoot(err), "not for this boot of "+h.Name, err)
	default:
		return notStored("keep the state of "+h.Name, err)
	}
}

// Report is called when a machine reports its hardware, in the query of a URL. The report is accepted from the address that this MAC
// holds only; in a network whose addresses another DHCP server leases, from any. A changed report is recorded as an event.
func (s *Service) Report(ctx context.Context, mac lab.MAC, query string, from netip.Addr) error {
	t := s.deps.Table()
	if err := s.verifyReport(t, mac, from); err != nil {
		s.recordRefusal(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: "report"}, err)
		return err
	}
	facts := discovered.ParseFacts(query)
	changed, err := s.deps.Discovered.Report(ctx, mac, from, facts)
	switch {
	case err != nil:
		err = notStored("keep the report of "+mac.String(), err)
		s.recordRefusal(t, event.Event{Kind: event.ScriptRefused, MAC: mac, Addr: from, Detail: "report"}, err)
		return err
	case changed:
		s.deps.Events.Record(event.Event{Kind: event.MachineReported, MAC: mac, Addr: from, Detail: summary(facts)})
	}
	return nil
}

// summary describes a machine for an admin.
func summary(f discovered.Facts) string {
	var parts []string
	for _, s := range []string{f.Manufacturer, f.Product, f.Serial, f.UUID} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ", ")
}
