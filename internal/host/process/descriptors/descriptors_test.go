package descriptors

import (
	"math"
	"testing"
)

// TestLimit: where little memory may be used, fewer connections are accepted.
func TestLimit(t *testing.T) {
	t.Parallel()
	all := Limit(math.MaxInt64)
	if all < 64 {
		t.Skipf("this process may open %d files", all)
	}
	if got := Limit(1 << 20); got != 64 {
		t.Errorf("%d descriptors for 1 MiB, want 64", got)
	}
	if got := Limit(int64(all) * perDescriptor); got != all {
		t.Errorf("%d descriptors, want all %d, for which there is memory", got, all)
	}
}

// TestDivide: the shares together are at most the limit, and no server is without one.
func TestDivide(t *testing.T) {
	t.Parallel()
	for _, sockets := range []int{0, 20, 200} {
		for _, limit := range []int{0, 64, least(sockets), 256, 512, 1024, 4096, 65536, 524288, 1 << 20} {
			s := Divide(limit, sockets)
			if sum := s.Own + s.DNS() + s.TFTP() + s.HTTP() + s.Admin + s.Balancers(); sum > limit && limit >= least(sockets) {
				t.Errorf("limit %d, %d sockets: %d are given away: %+v", limit, sockets, sum, s)
			}
			if min(s.DNSConnections, s.DNSForwards, s.TFTPTransfers, s.HTTPRequests, s.Admin, s.Checks, s.Balanced, s.Backends) < 1 {
				t.Errorf("limit %d, %d sockets: a server gets nothing: %+v", limit, sockets, s)
			}
		}
	}
	if s := Divide(524288, 20); s.DNSConnections != 64 || s.DNSForwards != 256 || s.TFTPTransfers != 1024 || s.HTTPRequests != 4096 || s.Admin != 512 || s.Checks != 256 || s.Balanced < 200_000 || s.Backends != 4096 {
		t.Errorf("as the systemd unit has it: %+v", s)
	}
}
