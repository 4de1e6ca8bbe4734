package vip

import "net/netip"

// Leave adds an address with its mark, as a killed holder leaves it.
func Leave(a netip.Addr, name string) error {
	all, _, err := interfaces()
	if err != nil {
		return err
	}
	return add(a, all[name])
}

// ParseND, Probe and Announcement are the frames, for fuzzing.
var (
	Probe         = probe
	GratuitousARP = gratuitousARP
)

// ParseND is parseND.
func ParseND(frame []byte) (a netip.Addr, mac [6]byte, probe, ok bool) {
	c, ok := parseND(frame)
	return c.addr, c.mac, c.probe, ok
}

// ParseARP is parseARP.
func ParseARP(frame []byte) (a netip.Addr, mac [6]byte, probe, ok bool) {
	c, ok := parseARP(frame)
	return c.addr, c.mac, c.probe, ok
}
