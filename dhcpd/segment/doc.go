// Package segment connects a DHCP server to a network segment.
//
// It owns the sockets of an interface, sends and receives in batches, probes which addresses are in use, answers router
// solicitations, and watches for other DHCP servers. It never decides which client gets an address, and of DHCP it reads
// only the replies of other servers.
//
//	sock, err := segment.Listen("br0")                 // a port in use fails here
//	in, out := datagram.NewReceiver(16, 2048), segment.NewSender(16, nil)
//	for {
//		n, err := sock.Receive(segment.PortServer, in) // waits for one packet, returns all that have arrived
//		for i := range n {
//			dest, reply := answer(in.Message(i), out.Frame())
//			out.Queue(sock, dest, reply)
//		}
//		out.Flush()
//	}
//
//	prober := segment.NewProber(segment.ProberDeps{Now: time.Now, Relevant: inPool})
//	go prober.Run(ctx)
//	go prober.Serve(ctx, sock)
//	prober.ProbeAhead(segment.Path{Interface: "br0"}, next) // so that an offer need not wait
//	if prober.Known(addr).Blocks(mac) { … }
//
// On a segment addresses are probed by ARP and not by ICMP: a host must answer ARP, whatever its firewall says, and the
// reply has its MAC. Past a relay there is only ICMP, and no reply proves little.
package segment
