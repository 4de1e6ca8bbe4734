// Package install is the install state machine: armed → booting → installing → installed, per host, in the store.
//
// It owns when a machine gets its installer, when its own disk, and the one-time token by which a boot fetches its config
// document. It knows no protocol and renders nothing.
//
//	t, err := m.Boot(ctx, host)              // a script is asked for: an installer, or the disk
//	err = m.Authorize(host, token, reads)    // may this token read the config document?
//	err = m.ConfigRead(ctx, host, token)     // it has read it: the install began
//	err = m.Done(ctx, host, token)           // the installer called back
//
// Every transition is durable before its effect can be seen, so that a killed daemon neither installs twice nor refuses
// an installer that it let boot.
package install
