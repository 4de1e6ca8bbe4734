// Package httpd serves what machines fetch by HTTP and what people look at.
//
// The boot plane gives machines their scripts, network boot programs, images and config documents, each under a path that
// says whose boot it is (see internal/lab/paths.go). The admin plane gives people a dashboard, an API, metrics and health.
// They are two servers of one shape that share no listener and no handler: a machine never reaches the admin plane by
// mistake, and a token for people is never asked of a machine.
//
//	boot, err := httpd.NewBoot(httpd.BootConfig{}, httpd.BootDeps{Table: table, Boot: desk, Firmware: firmware.FS(""), …})
//	admin, err := httpd.NewAdmin(httpd.AdminConfig{Token: token}, httpd.AdminDeps{Status: d, Inventory: d, …})
//	…
//	go boot.Serve(ctx, listeners...)
//	go admin.Serve(ctx, tcp, unix)      // the Unix socket needs no token: its permissions are the guard
//
// It decides nothing about a boot: the boot service (internal/boot) says what a machine gets, internal/boot/files which files may be
// fetched, and the daemon fills the types of internal/api. It never lists a folder, never serves a document raw, and never
// writes a token to a log.
package httpd
