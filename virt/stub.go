//go:build !(cgo && libvirt_dlopen)

package virt

import "errors"

// A stub stands in for libvirt in a program that was built without it.
type stub struct{}

func newLibvirt() Driver { return stub{} }

// Dial implements Driver by saying how to get a program that can.
func (stub) Dial(string) (Hypervisor, error) {
	return nil, errors.New("this bootlab was built without libvirt: build it with " +
		"\"CGO_ENABLED=1 go build -tags libvirt_dlopen ./cmd/bootlab\" (\"make build\" does)")
}

// Close implements Driver.
func (stub) Close() {}
