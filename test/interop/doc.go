// Package interop tests the real daemon, started by root in a network namespace, with other programs: dig, curl, DHCP and TFTP clients,
// perfdhcp, Ignition, cloud-init. It also sends garbage, kills the daemon during leases and installations, reloads under load, and
// requests the documents of other machines.
//
//	d := start(t, newLab(t, "10.90.1"))             // bootlab serve, as its own process and user
//	c := d.client(t)                                // a namespace with an address in the lab
//	c.run("dig", "+short", "@"+d.addr, "w0.lab.test")
//	d.kill()                                        // SIGKILL
//
// The tests skip with the reason where they do not run as root or a program is missing; see netns.Need.
package interop
