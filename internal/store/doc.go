// Package store keeps the state that bootlab must not forget: leases, install states, drains.
//
// A Store is a flat, ordered map of keys to small values with conditional transactions, the common ground of a local
// file (package logfile) and etcd. It does not interpret values.
//
//	err := s.Commit(ctx, store.Txn{
//		If:   []store.Cond{{Key: "lease/192.168.16.130", Absent: true}},
//		Then: []store.Op{{Key: "lease/192.168.16.130", Value: b}},
//	})
//	if errors.Is(err, store.ErrConflict) { … another writer was first … }
package store
