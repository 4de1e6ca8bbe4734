// Package install is the install state machine: armed → booting → installing → installed, per host, in the store.
//
// It decides when a machine gets its installer and when its own disk, and owns the one-time token by which a boot reads its config
// document. It knows no protocol and renders nothing.
//
//	t, err := m.Boot(ctx, host, request)         // a script is requested: installer or disk?
//	err = m.Received(ctx, host, t)               // the machine has it: the boot begins
//	err = m.Acknowledged(ctx, host, t, true)     // or it may have it: the boot begins when its token is used
//	release, err := m.Read(host, token, reads)   // may this token read the config document?
//	err = m.ConfigRead(ctx, host, token)         // the document was read: the install has begun
//	err = m.Done(ctx, host, token)               // the installer called back
//	err = w.Run(ctx, m, hosts, log)              // what events show: a system that is up, a timeout
//
// Hosts make their transitions independently of each other, and the store commits those of many hosts at once. Every transition is
// durable before its effect is visible: a daemon that is killed neither installs a machine twice nor refuses an installer that it had
// started. A request alone changes no state and no token: anybody can send one in a machine's name.
package install
