// Package datagram receives and sends datagrams in batches, with recvmmsg(2) and sendmmsg(2).
//
// It owns the layout of message headers, socket addresses and control messages, so that a reply can leave from the address
// that its request was sent to (IP_PKTINFO, IPV6_PKTINFO). It never opens, closes or configures a socket beyond that option,
// and reads nothing of what a datagram holds.
//
//	raw, err := conn.SyscallConn()
//	err = datagram.Prepare(raw)
//	in, out := datagram.NewReceiver(32, 2048), datagram.NewSender(32)
//	for {
//		n, err := in.Receive(raw) // waits for one datagram, returns all that have arrived
//		for i := range n {
//			m := in.Message(i)
//			out.Add(answer(m.Data), m.From, m.Local)
//		}
//		out.Send(raw, nil)
//	}
//
// Package net costs two system calls for each message. Under load a batch of 8 already saves most of them.
package datagram
