package daemon

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/lbproxy"
)

// members stores what an admin has set of backends at run time, below "member/".
type members struct{ store store.Store }

const memberPrefix = "member/"

// A memberRecord is the stored form of a lbproxy.Member.
type memberRecord struct {
	Added  bool      `json:"added,omitempty"`
	Name   string    `json:"name,omitempty"`
	Host   string    `json:"host,omitempty"`
	FQDN   string    `json:"fqdn,omitempty"`
	Backup bool      `json:"backup,omitempty"`
	Weight int       `json:"weight,omitempty"`
	Since  time.Time `json:"since"` // for debugging
}

func memberKey(balancer string, addr netip.AddrPort) string {
	return memberPrefix + balancer + "/" + addr.String()
}

// Load implements lbproxy.Members.
func (s members) Load(ctx context.Context) (ms []lbproxy.Member, err error) {
	err = readRecords(ctx, s.store, memberPrefix, func(key string, r memberRecord) error {
		balancer, backend, _ := strings.Cut(key, "/")
		addr, err := netip.ParseAddrPort(backend)
		if err == nil {
			ms = append(ms, lbproxy.Member{Balancer: balancer, Addr: addr, Added: r.Added, Name: r.Name, Host: r.Host, FQDN: r.FQDN, Backup: r.Backup, Weight: r.Weight})
		}
		return err
	})
	return ms, err
}

// Put implements lbproxy.Members.
func (s members) Put(ctx context.Context, m lbproxy.Member) error {
	value, err := json.Marshal(memberRecord{Added: m.Added, Name: m.Name, Host: m.Host, FQDN: m.FQDN, Backup: m.Backup, Weight: m.Weight, Since: time.Now().UTC()})
	if err != nil {
		return err
	}
	return s.store.Commit(ctx, store.Put(memberKey(m.Balancer, m.Addr), value))
}

// Delete implements lbproxy.Members.
func (s members) Delete(ctx context.Context, balancer string, addr netip.AddrPort) error {
	return s.store.Commit(ctx, store.Delete(memberKey(balancer, addr)))
}
