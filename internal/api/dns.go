package api

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// A DNSQuestion is what bootlab resolve asks.
type DNSQuestion struct {
	Name string // or an address, for its PTR
	Type string // such as AAAA; empty: A, or PTR of an address
	As   string // the client: an address, or a host; empty: the appliance itself
	DO   bool   // with DNSSEC records
}

// A DNSAnswer is an answer and why it is that one.
type DNSAnswer struct {
	Question string     `json:"question"` // name and type
	Client   netip.Addr `json:"client"`
	Code     string     `json:"code"`    // such as NOERROR
	Flags    []string   `json:"flags"`   // aa, ra, ad, tc
	Records  []string   `json:"records"` // zone-file lines: answers, authority, additional
	Steps    []DNSStep  `json:"steps"`
}

// A DNSStep is what decided about one name on the way to an answer.
type DNSStep struct {
	Name string `json:"name"`
	By   string `json:"by"` // zone, lease, local, rule, cache, upstream, policy
	Text string `json:"text"`
}

// A DNSFlush is how many answers left the cache of the forwarder.
type DNSFlush struct {
	Removed int `json:"removed"`
}

// A DNSQuery is a query that was answered.
type DNSQuery struct {
	At       time.Time  `json:"at"`
	Client   netip.Addr `json:"client"`
	Question string     `json:"question"` // name and type
	Code     string     `json:"code"`
	Source   string     `json:"source"`  // static, derived, lease, forward, local, none
	Records  int        `json:"records"` // in the answer section
}

// A DNSUpdate is what dynamic updates (RFC 2136) made of the records of one type at a name.
type DNSUpdate struct {
	Zone    string    `json:"zone"`
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	TTL     uint32    `json:"ttl"`
	Records []string  `json:"records"` // zone-file lines
	Key     string    `json:"key"`     // that the last change was signed with
	At      time.Time `json:"at"`      // of the last change
	Served  bool      `json:"served"`  // false: the lab file has or hides the name, or allows no updates of the zone
}

// OfName reports whether the update is of a name, with or without its last dot, and of a type; empty: of any type.
func (u DNSUpdate) OfName(name, rtype string) bool {
	return strings.EqualFold(strings.TrimSuffix(u.Name, "."), strings.TrimSuffix(name, ".")) && (rtype == "" || strings.EqualFold(u.Type, rtype))
}

// DNSUpdatesDeleted is how many RRsets an admin has deleted.
type DNSUpdatesDeleted struct {
	Deleted int    `json:"deleted"`
	Kept    string `json:"kept,omitempty"` // the state file before, if the daemon does not run
}

// DNSUpdates returns what dynamic updates have made, by zone, name and type.
func (c *Client) DNSUpdates(ctx context.Context) (all []DNSUpdate, err error) {
	return all, c.get(ctx, "dns/updates", &all)
}

// DeleteDNSUpdate deletes what dynamic updates made at a name: one type, or all if it is empty.
func (c *Client) DeleteDNSUpdate(ctx context.Context, name, rtype string) (d DNSUpdatesDeleted, err error) {
	return d, c.post(ctx, "dns/updates/delete", url.Values{"name": {name}, "type": {rtype}}, &d)
}

// Resolve answers a DNS question as its client would be answered, and says why.
func (c *Client) Resolve(ctx context.Context, q DNSQuestion) (a DNSAnswer, err error) {
	v := url.Values{"name": {q.Name}, "type": {q.Type}, "as": {q.As}}
	if q.DO {
		v.Set("do", "1")
	}
	return a, c.call(ctx, http.MethodGet, "dns/resolve", v, &a)
}

// FlushDNS removes a name and those below it, or everything if it is empty, from the cache of the forwarder.
func (c *Client) FlushDNS(ctx context.Context, name string) (f DNSFlush, err error) {
	return f, c.post(ctx, "dns/flush", url.Values{"name": {name}}, &f)
}

// FollowDNS calls fn for every DNS query of a client, a host or an address, from now on, until ctx ends, the daemon stops (nil) or fn
// returns an error, which is returned.
func (c *Client) FollowDNS(ctx context.Context, client string, fn func(DNSQuery) error) error {
	return followLines(ctx, c, "dns/log/"+url.PathEscape(client), nil, fn)
}
