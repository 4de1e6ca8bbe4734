package main

import (
	"context"
	"errors"
	"os"
)

// veth makes a namespace for a server, joined to ours, the load's, by a pair of devices: name0 here, name1 there.
func veth(ctx context.Context, space, name, serverAddr, loadAddr string) error {
	return ip(ctx, [][]string{
		{"netns", "add", space}, {"-n", space, "link", "set", "lo", "up"},
		{"link", "add", name + "0", "type", "veth", "peer", "name", name + "1", "netns", space},
		{"addr", "add", loadAddr + "/16", "dev", name + "0"}, {"link", "set", name + "0", "up"},
		{"-n", space, "addr", "add", serverAddr + "/16", "dev", name + "1"}, {"-n", space, "link", "set", name + "1", "up"},
	})
}

// reusePorts lets the load open tens of thousands of connections a second: the side that closes first keeps the port for a
// minute (TIME_WAIT), and a search for a free one among 28,000 takes the kernel up to 30 ms.
func reusePorts() error {
	const ipv4 = "/proc/sys/net/ipv4/"
	return errors.Join(
		os.WriteFile(ipv4+"ip_local_port_range", []byte("1024 65535"), 0),
		os.WriteFile(ipv4+"tcp_tw_reuse", []byte("1"), 0),
	)
}
