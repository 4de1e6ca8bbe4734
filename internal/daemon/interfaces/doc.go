// Package interfaces compares the networks of a lab with the interfaces and addresses that this machine has now.
//
// It asks the kernel and changes nothing. A lab may be that of another machine, and interfaces come and go.
//
//	l, err := load.Lab(path, load.Options{InterfaceAddr: interfaces.AddrIn})
//	listen := interfaces.OwnAddresses(l)
//	warnings := interfaces.AddressWarnings(l)
package interfaces
