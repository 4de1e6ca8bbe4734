// Package ports has the ports of the appliance's own servers and the socket of the command line.
//
// It opens them before the daemon drops privileges, follows the addresses of the lab, and closes what is not wanted any more. Where one is in
// use, the error names who holds it; a daemon of the same lab that is stopping is waited for. DHCP and the balancers open their own.
//
//	p, err := ports.Open(ctx, cfg, endpoints)
//	staged, err := p.Stage(ctx, endpoints())
//	staged.Commit()
//	err = p.Serve(ctx, "dnsd", with)
package ports
