// Package discovered keeps what unknown machines reported: those that the lab file does not list.
//
// A machine that boots a pool's discovery script sends a report: UUID, serial number, maker, architecture, NICs. The book keeps the last
// report of each, for a bounded number of machines, in the store, so that an admin can adopt them. It decides nothing: a report is not
// authenticated, and good for a suggestion only.
//
//	facts := discovered.ParseFacts(r.URL.RawQuery)   // never fails: what cannot be parsed is left out
//	book, err := discovered.Open(ctx, discovered.Config{}, discovered.Deps{Store: s, Log: log, Now: time.Now})
//	changed, err := book.Report(ctx, mac, addr, facts)
//	for _, m := range book.All() { … }               // the latest report first
package discovered
