// Package api is what the admin plane of a bootlab daemon says, and the client that asks it.
//
// It owns the JSON types of /api/v1/ and one Client for the command line, by the daemon's Unix socket or by TCP with a
// token. It knows no server: httpd answers with these types, and the daemon fills them.
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
