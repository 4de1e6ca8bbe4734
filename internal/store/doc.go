// Package store keeps what bootlab learned: leases, install states, drains.
//
// A Store is a flat, ordered map of keys to small values with conditional transactions, the common ground of a local
// file (package logfile) and etcd. It knows none of what it stores.
//
//	err := s.Commit(ctx, store.Txn{
//		If:   []store.Cond{{Key: "lease/192.168.16.130", Absent: true}},
//		Then: []store.Op{{Key: "lease/192.168.16.130", Value: b}},
//	})
//	if errors.Is(err, store.ErrConflict) { … somebody else was first … }
package store
