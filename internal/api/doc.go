// Package api holds the JSON types of the admin API, and its client.
//
// The Client uses the Unix socket of the daemon, or TCP with a token. httpd answers with the types, and the daemon fills them.
//
//	c, err := api.NewClient("/run/bootlab/admin.sock", "")
//	if err != nil { … }
//	hosts, err := c.Hosts(ctx)
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // no bootlab daemon answers at /run/bootlab/admin.sock: is it running? (bootlab serve)
//	}
//
// Fields may be added, never renamed. Durations are nanoseconds, times are RFC 3339.
package api
