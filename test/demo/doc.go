// Command demo shows a network installation from start to end. It starts bootlab and a libvirtd in a network namespace,
// creates a virtual machine and prints its timeline live: the machine installs itself over the network and boots from its
// own disk. Then the demo ends and cleans up after itself, also when it is interrupted.
//
//	make demo
package main
