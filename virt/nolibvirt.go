//go:build !(cgo && libvirt_dlopen)

package virt

import (
	"errors"
	"io"
)

// A libvirtConn is what a program that was built without libvirt has in its place: dial fails, so no method is called.
type libvirtConn struct{}

func dial(string) (*libvirtConn, error) {
	return nil, errors.New("this bootlab was built without libvirt: build it with " +
		"\"CGO_ENABLED=1 go build -tags libvirt_dlopen ./cmd/bootlab\" (\"make build\" does)")
}

var errNotBuilt = errors.New("built without libvirt")

func (*libvirtConn) watch(int)                                    {}
func (*libvirtConn) alive() bool                                  { return false }
func (*libvirtConn) domains() ([]Domain, error)                   { return nil, errNotBuilt }
func (*libvirtConn) node() (Node, error)                          { return Node{}, errNotBuilt }
func (*libvirtConn) pools() ([]Pool, error)                       { return nil, errNotBuilt }
func (*libvirtConn) networks() ([]Network, error)                 { return nil, errNotBuilt }
func (*libvirtConn) capabilities(_, _, _ string) (string, error)  { return "", errNotBuilt }
func (*libvirtConn) interfaces() ([]string, error)                { return nil, errNotBuilt }
func (*libvirtConn) defineNetwork(string) error                   { return errNotBuilt }
func (*libvirtConn) deleteNetwork(string) error                   { return errNotBuilt }
func (*libvirtConn) find(_, _ string) ([]Domain, error)           { return nil, errNotBuilt }
func (*libvirtConn) xml(string) (string, error)                   { return "", errNotBuilt }
func (*libvirtConn) define(string) error                          { return errNotBuilt }
func (*libvirtConn) setAutostart(string, bool) error              { return errNotBuilt }
func (*libvirtConn) start(string) error                           { return errNotBuilt }
func (*libvirtConn) startWith(string) error                       { return errNotBuilt }
func (*libvirtConn) setBootOrder(string, map[string]uint) error   { return errNotBuilt }
func (*libvirtConn) shutdown(string) error                        { return errNotBuilt }
func (*libvirtConn) destroy(string) error                         { return errNotBuilt }
func (*libvirtConn) undefine(string) error                        { return errNotBuilt }
func (*libvirtConn) volumes([]VolumeID) ([]Volume, error)         { return nil, errNotBuilt }
func (*libvirtConn) volumeAt(string) (Volume, error)              { return Volume{}, errNotBuilt }
func (*libvirtConn) grow(_, _ string, _ VolumeID, _ uint64) error { return errNotBuilt }
func (*libvirtConn) createVolume(_, _ string) (string, error)     { return "", errNotBuilt }
func (*libvirtConn) deleteVolume(_, _ string) error               { return errNotBuilt }
func (*libvirtConn) uploadVolume(_, _ string, _ io.Reader, _ uint64) (string, error) {
	return "", errNotBuilt
}
func (*libvirtConn) consoles(func(consoleFrame)) consoleOpener { return nil }
func (*libvirtConn) snapshots(string) ([]Snapshot, error)      { return nil, errNotBuilt }
func (*libvirtConn) snapshot(_, _ string) error                { return errNotBuilt }
func (*libvirtConn) revert(_, _ string) error                  { return errNotBuilt }
func (*libvirtConn) deleteSnapshot(_, _ string) error          { return errNotBuilt }
