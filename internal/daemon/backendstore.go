package daemon

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
	"github.com/bootlab/bootlab/lbproxy"
)

// drains stores the backends that an admin has drained, below "drain/".
type drains struct{ store store.Store }

const drainPrefix = "drain/"

func drainKey(d lbproxy.Drain) string { return drainPrefix + d.Balancer + "/" + d.Backend.String() }

// Load implements lbproxy.Drains.
func (s drains) Load(ctx context.Context) (ds []lbproxy.Drain, err error) {
	err = records.Read(ctx, s.store, drainPrefix, func(key string, since time.Time) error {
		balancer, backend, _ := strings.Cut(key, "/")
		addr, err := netip.ParseAddrPort(backend)
		if err == nil {
			ds = append(ds, lbproxy.Drain{Balancer: balancer, Backend: addr, Since: since})
		}
		return err
	})
	return ds, err
}

// Put implements lbproxy.Drains.
func (s drains) Put(ctx context.Context, d lbproxy.Drain) error {
	since, err := json.Marshal(d.Since.UTC())
	if err != nil {
		return err
	}
	return s.store.Commit(ctx, store.Put(drainKey(d), since))
}

// Delete implements lbproxy.Drains.
func (s drains) Delete(ctx context.Context, d lbproxy.Drain) error {
	return s.store.Commit(ctx, store.Delete(drainKey(d)))
}

// runtimeBackends stores what an admin has set of backends at run time, below "backend/".
type runtimeBackends struct{ store store.Store }

const runtimePrefix = "backend/"

// A runtimeRecord is the stored form of a lbproxy.RuntimeBackend, whose balancer and address are in the key.
type runtimeRecord struct {
	lbproxy.RuntimeBackend
	Since time.Time `json:"since"` // for debugging
}

func runtimeKey(balancer string, addr netip.AddrPort) string {
	return runtimePrefix + balancer + "/" + addr.String()
}

// Load implements lbproxy.RuntimeBackends.
func (s runtimeBackends) Load(ctx context.Context) (all []lbproxy.RuntimeBackend, err error) {
	err = records.Read(ctx, s.store, runtimePrefix, func(key string, r runtimeRecord) (err error) {
		balancer, backend, _ := strings.Cut(key, "/")
		r.Balancer = balancer
		if r.Addr, err = netip.ParseAddrPort(backend); err == nil {
			all = append(all, r.RuntimeBackend)
		}
		return err
	})
	return all, err
}

// Put implements lbproxy.RuntimeBackends.
func (s runtimeBackends) Put(ctx context.Context, b lbproxy.RuntimeBackend) error {
	value, err := json.Marshal(runtimeRecord{b, time.Now().UTC()})
	if err != nil {
		return err
	}
	return s.store.Commit(ctx, store.Put(runtimeKey(b.Balancer, b.Addr), value))
}

// Delete implements lbproxy.RuntimeBackends.
func (s runtimeBackends) Delete(ctx context.Context, balancer string, addr netip.AddrPort) error {
	return s.store.Commit(ctx, store.Delete(runtimeKey(balancer, addr)))
}
