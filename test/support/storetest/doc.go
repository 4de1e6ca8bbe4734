// Package storetest is the one suite that every store passes, and a store in memory for the tests of other packages.
//
// It owns what store.Store promises, as tests. It never looks behind the interface.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Open {
//			path := filepath.Join(t.TempDir(), "store.db")
//			return func() (store.Store, error) { s, _, err := logfile.Open(path); return s, err }
//		})
//	}
//
//	book, err := dhcpd.OpenBook(ctx, storetest.Memory())
package storetest
