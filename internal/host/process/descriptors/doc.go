// Package descriptors divides the file descriptors of the process among its servers.
//
// Each server gets a share that no other can use up, so a flood of connections to one starves none of the others. The Go
// runtime has raised the soft limit to the hard one at start.
//
//	shares := descriptors.Divide(descriptors.Limit(memory), sockets)
//	dnsd.New(dnsd.Config{MaxTCP: shares.DNSConnections, MaxForwards: shares.DNSForwards}, …)
package descriptors
