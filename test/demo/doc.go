// Command demo shows bootlab at work: it lays a lab in a network namespace, starts the daemon and a libvirtd there, creates
// a virtual machine, shows live how it installs itself over the network, and ends when the machine has booted from its own
// disk. Everything that it made is taken away again, also when it is interrupted.
//
//	make demo
package main
