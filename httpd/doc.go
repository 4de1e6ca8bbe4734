// Package httpd serves boot files to machines, and the dashboard and the admin API to people.
//
// Boot gives machines their scripts, network boot programs, images and config documents, each under a path that holds the
// machine's MAC (see internal/lab/paths.go). Admin has the dashboard, the admin API, metrics and health. They are two servers
// that share no listener and no handler: a machine never reaches the admin API by mistake, and never needs its token.
//
//	boot, err := httpd.NewBoot(httpd.BootConfig{}, httpd.BootDeps{Table: table, Boot: bootService, Firmware: firmware.FS(""), …})
//	admin, err := httpd.NewAdmin(httpd.AdminConfig{Token: token}, httpd.AdminDeps{Status: d, Inventory: d, …})
//	…
//	go boot.Serve(ctx, listeners...)
//	go admin.Serve(ctx, tcp, unix)      // the Unix socket needs no token: its permissions are the guard
//
// It decides nothing about a boot: the boot service (internal/boot) decides what a machine gets, internal/boot/files which
// files may be fetched, and the daemon fills the types of internal/api. It never lists a folder, never serves a document raw, and never
// writes a token to a log.
package httpd
