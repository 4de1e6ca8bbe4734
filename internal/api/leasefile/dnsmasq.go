package leasefile

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bootlab/bootlab/internal/api"
)

// parseDnsmasq reads "expiry MAC address name client-id" lines. A time of 0 is never, * is nothing. Leases of IPv6 follow a line
// that begins with duid.
func parseDnsmasq(data []byte) (*File, error) {
	f := &File{}
	n, six := 0, false
	for line := range strings.Lines(string(data)) {
		n++
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			continue
		case fields[0] == "duid":
			six = true
			continue
		case len(fields) != 5:
			return nil, fmt.Errorf("line %d: %d words, want 5: expiry, MAC, address, name, client id", n, len(fields))
		case six:
			addr, err := netip.ParseAddr(fields[2])
			if err != nil {
				return nil, fmt.Errorf("line %d: %.60q is not an address", n, fields[2])
			}
			f.Skipped = append(f.Skipped, skip(addr.WithZone(""), "not an IPv4 address"))
			continue
		}
		l, notOurs, err := dnsmasqLease(fields)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case notOurs != nil:
			f.Skipped = append(f.Skipped, *notOurs)
		default:
			f.Leases = append(f.Leases, l)
		}
	}
	return f, nil
}

func dnsmasqLease(fields []string) (l api.Lease, notOurs *api.SkippedLease, err error) {
	expires, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || expires < 0 || expires > maxTime {
		return l, nil, fmt.Errorf("%.60q is not a time in seconds", fields[0])
	}
	if l.IP, l.MAC, notOurs, err = endpoints(fields[2], fields[1]); err != nil || notOurs != nil {
		return l, notOurs, err
	}
	l.State, l.Expires, l.Never = api.LeaseActive, unix(expires), expires == 0
	if fields[3] != "*" {
		l.Name = label(fields[3])
	}
	if fields[4] != "*" {
		l.ClientID, err = clientID(fields[4])
	}
	return l, nil, err
}

func writeDnsmasq(w io.Writer, leases []api.Lease) error {
	out := bufio.NewWriter(w)
	for _, l := range leases {
		expires := int64(0)
		if !l.Expires.IsZero() {
			expires = max(1, l.Expires.Unix()) // 0 is never
		}
		fmt.Fprintf(out, "%d %s %s %s %s\n", expires, l.MAC, l.IP, orStar(label(l.Name)), orStar(l.ClientID))
	}
	return out.Flush()
}

func orStar(s string) string {
	if s == "" {
		return "*"
	}
	return s
}
