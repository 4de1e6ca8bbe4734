// Package bootload is a rack of machines that are switched on at once. They are simulated, but on the wire they do what real ones
// do, from the firmware's first packet to the installer's last call.
//
//	r, err := bootload.Run(ctx, bootload.Config{Server: server, Relay: relay, Machines: machines, Sizes: sizes})
//	fmt.Println(r.Done, "of", r.Machines, "are done after", r.Last)
//
// Each machine goes through the whole chain: DHCP as OVMF, its network boot program by TFTP with OVMF's options (the size probe that it
// breaks off, then windows of four), DHCP as iPXE, the script of its lease, kernel and initrd by HTTP, the config document
// that the kernel's arguments name as config=URL, and the request that they name as done=URL. A machine uses only URLs that it was given.
// It waits and asks again as firmware does: DHCP after 4, 8, 16 seconds as OVMF and after 1, 2, 4 as iPXE, TFTP after 4.
//
// What is not as in a rack: DHCP comes through a relay, since all machines are one network interface; OVMF's four seconds of
// collecting offers are left out, which all servers would have to wait for alike; and what is big is dropped in the kernel, to
// spare the machine that plays five hundred.
package bootload
