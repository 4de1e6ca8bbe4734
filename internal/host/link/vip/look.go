package vip

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
)

// Look returns what a Holder would find of addresses, and changes nothing: it asks other machines for three seconds whether they use those
// that no interface has. One that nobody uses is Missing without Err. Without the privilege to ask the error is fs.ErrPermission.
func Look(ctx context.Context, wanted []Wanted) ([]Address, error) {
	known := make(chan Address)
	ctx, cancel := context.WithCancel(ctx)
	h, err := Open(ctx, Config{}, Deps{Records: noRecords{}, Log: slog.New(slog.DiscardHandler), Report: func(s Address) {
		select {
		case known <- s:
		case <-ctx.Done():
		}
	}})
	if err == nil && h.noRaw != nil {
		h.close()
		err = fmt.Errorf("ask other machines for an address: %w", h.noRaw)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	h.Want(wanted)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	found := map[netip.Addr]Address{}
	for len(found) < len(wanted) && ctx.Err() == nil && err == nil {
		select {
		case s := <-known:
			found[s.Addr] = s
		case err = <-ended:
			ended <- nil
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	cancel()
	<-ended
	var states []Address
	for _, w := range wanted {
		s := found[w.Addr]
		if s.Err == errOff {
			s.Err = ""
		}
		states = append(states, s)
	}
	return states, err
}

// errOff is why a Holder that holds no addresses has not added one.
const errOff = "appliance.addresses is off"

// noRecords are those of a Holder that adds nothing.
type noRecords struct{}

// Load implements Records.
func (noRecords) Load(context.Context) ([]Record, error) { return nil, nil }

// Put implements Records.
func (noRecords) Put(context.Context, Record) error { return nil }

// Delete implements Records.
func (noRecords) Delete(context.Context, netip.Addr) error { return nil }
