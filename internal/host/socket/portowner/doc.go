// Package portowner says which process holds a port.
//
// A first start fails most often because another daemon has port 53, 67 or 69. The kernel does not say which; /proc does.
//
//	pc, err := net.ListenPacket("udp", ":53")
//	if err != nil {
//		return portowner.Explain(err, "udp", ":53", "appliance.dns")
//		// listen udp :53: address already in use by systemd-resolve (pid 123): …
//	}
package portowner
