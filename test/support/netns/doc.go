// Package netns builds small networks in Linux network namespaces, for tests that need real interfaces.
//
// A test binary that calls Main from TestMain and is started as root runs in a network namespace of its own. It changes nothing outside and
// leaves nothing behind. Enter gives one test a namespace of its own, for tests with the same addresses in parallel.
//
//	func TestMain(m *testing.M) { netns.Main(m) }
//
//	func TestLease(t *testing.T) {
//		netns.Need(t, "root", "udhcpc")
//		seg := netns.NewSegment(t, "10.77.0.1/24")
//		client := seg.NewClient(t)                     // a namespace of its own, joined by a veth pair
//		client.Command(ctx, "udhcpc", "-i", "eth0", "-n", "-q").Run()
//	}
package netns
