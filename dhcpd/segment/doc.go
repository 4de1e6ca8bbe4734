// Package segment is what lies between a DHCP server and a wire.
//
// It owns the sockets of a segment, sends and receives in batches, finds out which addresses are in use, and watches for
// other DHCP servers. It never decides who gets which address, and of DHCP it reads only what tells a stranger's answer.
//
//	sock, err := segment.Listen("br0")                 // a taken port fails here
//	in, out := segment.NewInbox(32), segment.NewOutbox(32, nil)
//	for {
//		n, err := sock.Receive(segment.PortServer, in) // waits for one, takes all that are there
//		for i := range n {
//			dest, reply := answer(in.At(i), out.Frame())
//			out.Queue(sock, dest, reply)
//		}
//		out.Flush()
//	}
//
//	prober := segment.NewProber(segment.ProberConfig{}, segment.ProberDeps{Now: time.Now, Wanted: inPool})
//	go prober.Run(ctx)
//	go prober.Serve(ctx, sock)
//	prober.Survey(segment.Path{Interface: "br0"}, next) // looked at ahead: an offer waits for nothing
//	if prober.Known(addr).Blocks(mac) { … }
//
// ARP and not ICMP tells on a segment whether an address is in use: a host must answer it, whatever its firewall says, and
// the answer names the machine. Past a relay there is only ICMP, and silence proves little.
package segment
