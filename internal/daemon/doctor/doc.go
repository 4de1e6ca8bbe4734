// Package doctor finds what would keep a lab from working, before its users do.
//
// Each check is one function that looks at the lab and this machine and returns findings. None of them changes anything: a port is bound
// and closed at once, a file for the disk's speed has no name, and a DHCPDISCOVER takes no lease. What a start of the daemon does itself,
// the daemon's package tries, by the functions that a start calls; it makes a Machine of a lab. A daemon that runs measures more than can
// be seen from outside: Join adds that.
//
//	for _, f := range doctor.Run(ctx, daemon.Examined(l, "lab.yaml", warnings)) {
//		fmt.Println(f.Level, f.Check, f.Subject, f.Text, f.Fix)
//	}
package doctor
