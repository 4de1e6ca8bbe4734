// Package netns lays small networks in Linux network namespaces, for tests that need real interfaces.
//
// A test binary that calls Main from TestMain runs, when started as root, in a network namespace of its own, so nothing
// it does can be seen outside, and nothing is left behind when it ends:
//
//	func TestMain(m *testing.M) { netlab.Main(m) }
//
//	func TestLease(t *testing.T) {
//		netlab.Need(t, "root", "udhcpc")
//		seg := netlab.NewSegment(t, "10.77.0.1/24")
//		client := seg.NewClient(t)                     // a namespace of its own, joined by a veth pair
//		client.Command(ctx, "udhcpc", "-i", "eth0", "-n", "-q").Run()
//	}
package netns
