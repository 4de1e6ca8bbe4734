//go:build !(cgo && libvirt_dlopen)

package virt

import "errors"

// A libvirtConn is what a program that was built without libvirt has in its place: dial fails, so no method is called.
type libvirtConn struct{}

func dial(string) (*libvirtConn, error) {
	return nil, errors.New("this bootlab was built without libvirt: build it with " +
		"\"CGO_ENABLED=1 go build -tags libvirt_dlopen ./cmd/bootlab\" (\"make build\" does)")
}

func (*libvirtConn) watch(int)                       {}
func (*libvirtConn) alive() bool                     { return false }
func (*libvirtConn) openConsoles(func(consoleFrame)) {}
func (*libvirtConn) methods() map[string]any         { return nil }
