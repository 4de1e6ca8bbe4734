// Package doctor finds what would keep a lab from working, before its users do.
//
// Each check is one function that looks at the lab and this machine and returns findings. None of them changes anything: a port is bound
// and closed at once, a file for the disk's speed has no name, and a DHCPDISCOVER takes no lease. A daemon that runs measures more than
// can be seen from outside; its caller adds those findings.
//
//	for _, f := range doctor.Run(ctx, &doctor.Machine{Lab: l, Endpoints: daemon.Endpoints(l)}) {
//		fmt.Println(f.Level, f.Check, f.Subject, f.Text, f.Fix)
//	}
package doctor
