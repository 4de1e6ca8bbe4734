package leasefile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/api"
)

// keaHeader are the columns of Kea 1.8 to 2.2. Newer versions add columns (pool_id) to files that lack them.
const keaHeader = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n"

// keaInfinite is the valid lifetime of a lease that does not end.
const keaInfinite = math.MaxUint32

// keaStates are the states of a lease in Kea, by number.
var keaStates = []api.LeaseState{api.LeaseActive, api.LeaseDeclined, api.LeaseExpired, api.LeaseReleased}

// parseKea reads the memfile of Kea. It is a log: the last line of an address counts, one with no lifetime deletes it.
func parseKea(data []byte) (*File, error) {
	r, err := newRows(keaRows(data), "address", "hwaddr", "valid_lifetime", "expire")
	if err != nil {
		return nil, err
	}
	type line struct {
		lease   api.Lease
		notOurs *api.SkippedLease
		order   int
	}
	last := map[netip.Addr]line{}
	for n := 0; ; n++ {
		err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		l, deleted, notOurs, err := keaLease(r)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
		delete(last, l.IP)
		if !deleted {
			last[l.IP] = line{l, notOurs, n}
		}
	}
	lines := make([]line, 0, len(last))
	for _, l := range last {
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(x, y line) int { return x.order - y.order })
	f := &File{}
	for _, l := range lines {
		if l.notOurs != nil {
			f.Skipped = append(f.Skipped, *l.notOurs)
			continue
		}
		f.Leases = append(f.Leases, l.lease)
	}
	return f, nil
}

// keaRows reads Kea's rows: columns with commas between them and no quotes. A comma in a value is written as &#x2c.
func keaRows(data []byte) func() ([]string, int, error) {
	line, rest := 0, string(data)
	return func() ([]string, int, error) {
		for rest != "" {
			var row string
			row, rest, _ = strings.Cut(rest, "\n")
			line++
			if row = strings.TrimSuffix(row, "\r"); row != "" {
				return strings.Split(row, ","), line, nil
			}
		}
		return nil, 0, io.EOF
	}
}

func keaLease(r *rows) (l api.Lease, deleted bool, notOurs *api.SkippedLease, err error) {
	if l.IP, l.MAC, notOurs, err = endpoints(r.col("address"), r.col("hwaddr")); err != nil {
		return l, false, nil, err
	}
	lifetime, err := keaNumber(r, "valid_lifetime", keaInfinite)
	if err != nil {
		return l, false, nil, err
	}
	expire, err := keaNumber(r, "expire", math.MaxInt64)
	if err != nil {
		return l, false, nil, err
	}
	state := int64(0)
	if r.col("state") != "" {
		if state, err = keaNumber(r, "state", int64(len(keaStates))-1); err != nil {
			return l, false, nil, err
		}
	}
	if l.ClientID, err = clientID(r.col("client_id")); err != nil {
		return l, false, nil, err
	}
	l.State = keaStates[state]
	l.Name = label(strings.TrimSuffix(r.col("hostname"), "."))
	if l.Never = lifetime == keaInfinite; !l.Never {
		if expire > maxTime {
			return l, false, nil, fmt.Errorf("expire %d is no time between 1970 and 2106", expire)
		}
		l.Expires = time.Unix(expire, 0).UTC() // 0 is 1970 here, and never elsewhere
	}
	if since := expire - lifetime; since > 0 && since <= maxTime {
		l.Since = unix(since)
	}
	return l, lifetime == 0, notOurs, nil
}

func keaNumber(r *rows, column string, most int64) (int64, error) {
	n, err := strconv.ParseInt(r.col(column), 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s %.60q is not a number up to %d", column, r.col(column), most)
	}
	return n, nil
}

func writeKea(w io.Writer, leases []api.Lease, o Options) error {
	out := bufio.NewWriter(w)
	out.WriteString(keaHeader)
	for _, l := range leases {
		id, ok := o.SubnetIDs[l.Network]
		if !ok {
			return fmt.Errorf("network %s of %s has no subnet id for Kea", l.Network, l.IP)
		}
		since, lifetime, expire := l.Since.Unix(), int64(keaInfinite), int64(0)
		if l.Since.IsZero() {
			since = 0
		}
		if !l.Expires.IsZero() {
			expire = l.Expires.Unix()
			lifetime = min(max(expire-since, 1), keaInfinite-1)
		} else {
			expire = since + lifetime
		}
		fmt.Fprintf(out, "%s,%s,%s,%d,%d,%d,0,0,%s,%d,\n", l.IP, l.MAC, l.ClientID, lifetime, expire, id, label(l.Name), max(0, slices.Index(keaStates, l.Status())))
	}
	return out.Flush()
}

// label returns a host name if it can stand in a file of words, else nothing.
func label(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == ',' || c == '"' || c == '*' }) {
		return ""
	}
	return name
}
