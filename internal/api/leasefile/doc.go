// Package leasefile reads and writes lease files: those of Kea and dnsmasq, and CSV and JSON of our own.
//
// It owns the formats. It opens no file and does not decide which leases are good: the daemon does.
//
//	f, err := leasefile.Parse(data, leasefile.Detect(data))
//	… f.Leases, f.Skipped …
//	err = leasefile.Write(w, leasefile.Kea, leases, leasefile.Options{SubnetIDs: map[string]int{"lan": 1}})
//
// | format | source |
// |---|---|
// | JSON | the answer of GET leases, docs/admin.md |
// | CSV | the same fields, a line for each lease, RFC 4180 |
// | Kea | kea-leases4.csv, the memfile backend of Kea 1.0 to 3.0: a log, of which the last line of an address counts |
// | dnsmasq | dnsmasq.leases, man dnsmasq and lease.c |
package leasefile
