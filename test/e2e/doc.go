// Package e2e tests the real daemon with emulated machines: real firmware, a real installer, and a boot from the installed disk.
//
// The tests need root. Each has its own network namespace and runs in parallel with others. Package test/support/qemu starts the
// machines, package test/support/guest builds what they boot and install.
package e2e
