// Package power switches bare metal on and off, and restarts it from the network, through its management controller (BMC).
//
// It speaks Redfish (DMTF DSP0266), and IPMI through ipmitool if that is installed. It sets the boot source of the next
// boot to the network, and restarts the machine or powers it on. It keeps no session and no state.
//
//	err := power.Cycle(ctx, host.BMC)                     // boots from the network once
//	state, err := power.Do(ctx, host.BMC, power.Status)   // on or off
//
// The controller's certificate is verified. Its answers are not trusted: their size is limited, links are followed on the
// same controller only, and messages are made printable.
package power
