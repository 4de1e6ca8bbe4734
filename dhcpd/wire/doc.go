// Package wire parses the packets of DHCPv4 clients and writes the replies (RFC 2131, RFC 2132 and their updates).
//
// It owns the bytes of both, and knows no socket and no lease: the address and the boot file of a machine are decided by its
// caller.
//
//	options, err := wire.Builder{Subnet: subnet, Router: router, DNS: dns}.Build() // once per network, pool or host
//
//	var req wire.Packet // one per receive loop, reused for every packet
//	if err := req.Parse(packet); err != nil {
//		return err // a wire.ParseError, which is a metric's label too
//	}
//	reply := wire.Reply{Req: &req, Kind: wire.Ack, Server: self, YIAddr: addr, Lease: 12 * time.Hour, Options: options}
//	out = reply.Append(out[:0])
//	if reply.Omitted.Len() > 0 {
//		log.Warn("options left out", "options", reply.Omitted.String())
//	}
//
// # Which client gets which option
//
//	always                          53 54 51 58 59; 61 and 82 as they came; 1 3 6; 43 60 66 67 175 where there is something to
//	                                boot; 93 94 97 to firmware and iPXE; custom: 43 60 66 67 128-135 150 175 208-211, and any with Force
//	to systems, and on request      12 15 28 121
//	on request, or without a list   26 42 119 249; custom: all others, such as 114, 120 or 252
//	to clients that list it         150
//	to systems that list it         108 (RFC 8925 section 3.3), Force or not
//	to clients that send it         81 (RFC 4702)
//	in a refusal                    53 54 56 61 82 (RFC 2131 table 3)
//
// A custom option with a line of its own above is sent as that line says. A client requests an option by listing it in
// option 55.
//
// Options are in the order of their priority: what every client needs, the boot file, what the client lists, in its order
// (RFC 2132 section 9.8), what it gets without a request. What exceeds the client's limit (option 57, 576 bytes without it)
// goes into the header's file and sname for systems (option 52), and is left out and reported for firmware and iPXE, which
// expect a file name there.
//
// # Names
//
// The DNS server of this daemon answers for the names of leases, so a client has nothing to update: option 81 is answered with
// S, and with O if the client asked for something else, or with N if the client has no name there (RFC 4702 section 4).
//
// # Why not a codec
//
// A packet to the codec (github.com/insomniacslk/dhcp) is a map of copies. On one core of an AMD EPYC, Go 1.26, "go test
// -bench . -cpu 1", packets of real clients:
//
//	parse  perfdhcp   106 ns, 0 allocations   codec  1.6 µs, 16 allocations
//	       OVMF       141 ns, 0                      1.7 µs, 20
//	       iPXE       119 ns, 0                      1.6 µs, 26
//	       udhcpc     158 ns, 0                      2.4 µs, 20
//	write  perfdhcp   145 ns, 0                      6.9 µs, 25
//	       OVMF       300 ns, 0                      5.2 µs, 24
//	       iPXE       247 ns, 0                     10.8 µs, 25
//
// There is no cache of whole option blocks by request list: it could not save more than a part of those 300 ns, and
// would cost a lookup, a lock and a limit. The codec also leaves out option 52, puts option 53 behind 51, refuses a
// packet without option 255, which dnsmasq and Kea take, and panics on an address that is not IPv4. The
// fuzz targets compare this package with it, in both directions.
package wire
