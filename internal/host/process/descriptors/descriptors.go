package descriptors

import "golang.org/x/sys/unix"

// Shares says how many of what each server may have open at one time. All of it together needs at most Limit descriptors, unless
// it is too low for that.
type Shares struct {
	Own int // descriptors for sockets that listen, the store, files of the lab, children and connections to hypervisors

	DNSConnections int // over TCP
	DNSForwards    int // queries that wait for another server
	TFTPTransfers  int
	HTTPRequests   int // connections of machines, each with the file that it gets
	Admin          int // connections
	Checks         int // health checks of backends in progress
	Sessions       int // of clients of balancers of mode udp
	Balanced       int // connections of clients of balancers
	Backends       int // connections of balancers to backends beyond one for each of Balanced
}

// What one of these needs.
const (
	perTransfer = 2 // a socket and a file
	perRequest  = 3 // a connection, and a file, or of a mirror the connection upstream and the file that keeps it

	// Seven connections of balancers: two sockets each, and two descriptors for further dials of clients that wait for a
	// backend and for the pipes of splice(2), which few connections need at one time.
	perSevenBalanced = 16
)

// own is how many descriptors the process needs besides sockets that listen: standard streams, epoll, the store with its
// compaction, the watch on the lab, a few files and children.
const own = 40

// least is the lowest limit at which every server works, with that many listening sockets.
func least(sockets int) int { return own + sockets + 64 }

// Enough is the lowest limit at which each server has dozens of clients at one time: below it ten idle clients of one balancer keep others out.
func Enough(sockets int) int { return own + sockets + 512 }

// perDescriptor is the memory in bytes that a descriptor may stand for: half a connection whose buffers and head are full has less.
const perDescriptor = 16 << 10

// Limit returns how many descriptors the process may open: that of the kernel, or fewer if the process may use so little memory that
// connections with full buffers would not fit into it. memory is in bytes.
func Limit(memory int64) int {
	files, most := uint64(1024), uint64(1<<20)
	var rlimit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit) == nil {
		files = rlimit.Cur
	}
	return int(min(files, most, uint64(memory)/perDescriptor))
}

// Divide divides limit descriptors, of which that many are sockets that listen. What the other servers have no use for goes to
// the balancers.
func Divide(limit, sockets int) Shares {
	s := Shares{Own: own + sockets}
	rest := max(limit-s.Own, 0)
	percent := func(share, each, most int) int { return min(max(rest*share/100/each, 1), most) }
	s.DNSConnections = percent(8, 1, 64)
	s.DNSForwards = percent(8, 1, 256)
	s.TFTPTransfers = percent(24*4/5, perTransfer, 1024) // those that end take a quarter more
	s.HTTPRequests = percent(24, perRequest, 4096)
	s.Admin = percent(8, 1, 512)
	s.Checks = percent(8, 1, 256)
	s.Sessions = percent(8, 1, 16384)
	rest -= s.DNSConnections + s.DNSForwards + s.TFTP() + s.HTTP() + s.Admin + s.Checks + s.Sessions
	s.Backends = min(max(rest/5, 1), 4096)
	s.Balanced = max(7*(rest-s.Backends)/perSevenBalanced, 1)
	return s
}

// DNS returns the descriptors of the DNS server.
func (s Shares) DNS() int { return s.DNSConnections + s.DNSForwards }

// TFTP returns the descriptors of the TFTP server.
func (s Shares) TFTP() int { return perTransfer * (s.TFTPTransfers + max(1, s.TFTPTransfers/4)) }

// HTTP returns the descriptors of the HTTP server for machines.
func (s Shares) HTTP() int { return perRequest * s.HTTPRequests }

// Balancers returns the descriptors of the balancers.
func (s Shares) Balancers() int {
	return s.Checks + s.Sessions + s.Backends + perSevenBalanced*s.Balanced/7
}
