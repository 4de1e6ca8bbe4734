// Package interop runs the real daemon, as root starts it, in a network namespace, and lets strangers at it: dig, curl,
// udhcpc and dnsperf that must be served, garbage that must not hurt, SIGKILL in the middle of leases and installs,
// reloads under load, and everybody who wants a document that is another's.
//
//	d := start(t, newLab(t, "10.90.1"))             // bootlab serve, as its own process and user
//	c := d.client(t)                                // a namespace with an address in the lab
//	c.run("dig", "+short", "@"+d.addr, "w0.lab.test")
//	d.kill()                                        // SIGKILL
//
// The tests skip with the reason where they are not root or a client is missing; see netlab.Need.
package interop
