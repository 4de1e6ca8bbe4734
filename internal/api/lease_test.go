package api_test

import (
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

func book(t *testing.T) (leases []api.Lease, now time.Time) {
	t.Helper()
	now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	add := func(last byte, mac lab.MAC, host, name, pool string, state api.LeaseState, left time.Duration) {
		leases = append(leases, api.Lease{
			IP: netip.AddrFrom4([4]byte{10, 0, 0, last}), MAC: mac, Host: host, Name: name, Network: "lan", Pool: pool, State: state, Expires: now.Add(left),
		})
	}
	add(1, lab.MAC{0x52, 0x54, 0, 1, 1, 1}, "web", "localhost", "", "", time.Hour)
	add(2, lab.MAC{0x52, 0x54, 0, 1, 1, 2}, "", "printer", "guests", api.LeaseActive, 10*time.Minute)
	add(3, lab.MAC{0x02, 0, 0, 0, 0, 3}, "", "", "guests", api.LeaseReleased, 10*time.Minute)
	add(4, lab.MAC{0x02, 0, 0, 0, 0, 4}, "", "", "guests", api.LeaseExpired, -time.Minute)
	add(5, lab.MAC{}, "", "", "guests", api.LeaseConflict, 5*time.Minute)
	add(6, lab.MAC{0x02, 0, 0, 0, 0, 6}, "", "", "guests", api.LeaseOffered, time.Minute)
	leases[5].Network = "far"
	return leases, now
}

func TestLeaseFilter(t *testing.T) {
	t.Parallel()
	leases, now := book(t)
	for query, want := range map[string]string{
		"":                              "1256",
		"network=far":                   "6",
		"network=nowhere":               "",
		"pool=guests":                   "256",
		"host=web":                      "1",
		"host=PRINTER":                  "2",
		"mac=52:54:00:01:01:02":         "2",
		"mac=52-54-00":                  "12",
		"mac=52:54:":                    "12",
		"mac=52:54:00:00:00:00/15":      "12",
		"mac=*:*:*:*:*:02,02:*:*:*:*:6": "error",
		"mac=*:*:*:*:*:02,02":           "26",
		"mac=52:54:00:01:01:02:03":      "error",
		"mac=nobody":                    "error",
		"state=all":                     "123456",
		"state=active":                  "12",
		"state=expired&state=released":  "34",
		"state=conflict,offered":        "56",
		"state=gone":                    "error",
		"expiring=1h":                   "12",
		"expiring=15m":                  "2",
		"expiring=15m&state=all":        "2",
		"expiring=soon":                 "error",
		"expiring=-1h":                  "error",
		"host=web&mac=52:54:00&pool=x":  "",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := api.ParseLeaseFilter(v)
		got := ""
		for _, l := range leases {
			if f.Keep(l, now) {
				got += string('0' + rune(l.IP.As4()[3]))
			}
		}
		if err != nil {
			got = "error"
			if api.AsError(err).HTTPStatus() != 400 || api.AsError(err).Hint == "" {
				t.Errorf("%s: %v", query, err)
			}
		}
		if got != want {
			t.Errorf("%q keeps %s, want %s (%v)", query, got, want, err)
		}
		if err != nil {
			continue
		}
		again, err := api.ParseLeaseFilter(f.Values())
		if diff := cmp.Diff(f, again, cmp.Comparer(func(a, b lab.MACPattern) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%q travels otherwise: %v\n%s", query, err, diff)
		}
	}
}

func TestPoolFull(t *testing.T) {
	t.Parallel()
	for p, want := range map[api.Pool]bool{{Size: 2, Free: 1}: false, {Size: 2}: true, {Size: 2, Free: -1}: true, {}: true} {
		if p.Full() != want {
			t.Errorf("%+v: full %v", p, !want)
		}
	}
}
