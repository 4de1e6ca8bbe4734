//go:build !(cgo && libvirt_dlopen)

package virt

import "errors"

// A noLibvirt is the Driver of a program that was built without libvirt.
type noLibvirt struct{}

func newLibvirt() Driver { return noLibvirt{} }

// Dial implements Driver. The error says how to build with libvirt.
func (noLibvirt) Dial(string) (Hypervisor, error) {
	return nil, errors.New("this bootlab was built without libvirt: build it with " +
		"\"CGO_ENABLED=1 go build -tags libvirt_dlopen ./cmd/bootlab\" (\"make build\" does)")
}

// Close implements Driver.
func (noLibvirt) Close() {}
