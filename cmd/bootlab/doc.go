// Command bootlab is the lab's network-boot appliance: one lab file, from which DHCP, TFTP, DNS, HTTP, load balancers and
// virtual machines are derived, and one daemon that serves them all.
//
//	bootlab check --lab lab.yaml     # is it right, and would every host boot?
//	bootlab plan worker-0            # what follows from it for one host
//	sudo bootlab serve               # serves it
//	bootlab timeline worker-0 -f     # asks the daemon what a machine does
//
// Each command is a function that asks the lab or the daemon and prints the answer, as text or with --json; nothing is
// decided here.
package main
