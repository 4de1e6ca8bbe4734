// Package bmc makes a machine boot from the network now, through its management controller.
//
// It speaks Redfish (DMTF DSP0266), and IPMI by way of ipmitool where that is installed. It sets the boot source for the
// next boot alone, to the network, and restarts the machine, or switches it on. It keeps no session and no state.
//
//	err := bmc.Cycle(ctx, host.BMC)
//
// The controller's certificate is checked. What it answers is foreign: it is read up to a bound, its links are followed on
// the same controller only, and its messages are made printable.
package bmc
