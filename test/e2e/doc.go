// Package e2e holds the tests of the whole: the real daemon, real firmware, a real installer, and a machine that at last
// boots from its own disk.
//
// The tests need root, and make their network in a namespace of their own. The machines are in ./qemu, what they boot and
// install is in ../guest.
package e2e
