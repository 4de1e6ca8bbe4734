// Package connlimit bounds the connections that a server has open, and what else its clients share.
//
// A Set holds a fixed number of connections. When it is full, a new connection takes the place of an idle one: of the
// client that has the most idle connections, the one that has been idle longest. While there is an idle connection, none in
// use is evicted. When all are in use, the client with the most loses its oldest, unless the new connection is of that
// client: then the new one is refused. With a Patience, a connection whose first request may still be on its way is
// evicted after those in use. So a client that opens many connections evicts its own, and never locks others out.
// Where all clients have equally many in use, a new client may take the place of one that takes its answer too slowly.
//
// Connections that last, as those through a balancer, are Shared: a client may have as many as are left for others. By the same rule a
// Counter bounds what has no slot of its own to evict, such as requests.
//
//	set := connlimit.New(connlimit.Config{Max: 4096})
//	c := set.Add(addr, func() { evicted.Inc(); conn.Close() })
//	if c == nil { // refused
//		conn.Close()
//		return
//	}
//	defer c.Remove()
//	for request := range requests {
//		c.Begin()
//		answer(request)
//		c.End()
//	}
//
// Every method takes O(log clients) at most, however many connections a flood opens. A Set never closes a connection
// itself: it calls the function given to Add.
package connlimit
