// Package discovered remembers machines that the lab file does not have, and what they told of themselves.
//
// A machine that boots a pool's discovery script sends a report: UUID, serial number, maker, architecture, NICs. The book
// keeps the last report of each, a bounded number of them, in the store, so that people can adopt them later. It decides
// nothing: a report is the word of a stranger, good for a suggestion and no more.
//
//	facts := unknown.ParseFacts(r.URL.RawQuery)          // never fails: what cannot be read is left out
//	book, err := unknown.Open(ctx, unknown.Config{}, unknown.Deps{Store: s, Now: time.Now})
//	news, err := book.Report(ctx, mac, addr, facts)
//	for _, m := range book.All() { … }                  // the one heard of last comes first
package discovered
