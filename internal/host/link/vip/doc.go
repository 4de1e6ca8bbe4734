// Package vip holds VIPs, the addresses of clusters and balancers, on interfaces of this machine.
//
// It probes first whether another machine uses an address (IPv4 by ARP probes, RFC 5227; IPv6 by neighbour solicitations and the kernel's
// duplicate address detection, RFC 4862), then adds it, announces it, watches for others that claim it, and removes at its end what it
// added. It also removes what a killed predecessor left: an address is known as its own by the kernel's protocol field (Protocol) and by a
// record that is written before the address is added. It never changes an address that something else has added.
//
//	h, err := vip.Open(ctx, vip.Config{Hold: true}, vip.Deps{Records: records, Log: log})
//	h.Want([]vip.Wanted{{Addr: netip.MustParseAddr("192.168.16.10"), Interface: "br0"}})
//	go h.Run(ctx)                  // needs CAP_NET_RAW to probe, CAP_NET_ADMIN to add
//	for _, s := range h.States() { … }
package vip
