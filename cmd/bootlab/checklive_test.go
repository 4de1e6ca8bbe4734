//go:build cgo && libvirt_dlopen

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestCheckLive asks libvirt's driver for tests, which has the pool default-pool and the interface eth1, with an error in the lab file's
// place of it, and without.
func TestCheckLive(t *testing.T) {
	netns.Need(t, "virsh") // the driver is in libvirt's library
	const text = `version: 1
lab: t
domain: lab.example
networks:
  lan: {subnet: 192.168.16.0/24, address: 192.168.16.1}
hypervisors:
  kvm1: {uri: 'test:///default', pool: POOL, bridges: {lan: INTERFACE}}
hosts:
  a: {ip: 192.168.16.9, vm: {hypervisor: kvm1, memory: 1GiB, disks: [1GiB]}}
`
	live := func(pool, iface string) (string, error) {
		file := filepath.Join(t.TempDir(), "lab.yaml")
		if err := os.WriteFile(file, []byte(strings.NewReplacer("POOL", pool, "INTERFACE", iface).Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := bootlab(t.Context(), "check", "--live", "--lab", file).CombinedOutput()
		return string(out), err
	}
	if out, err := live("default-pool", "eth1"); err != nil || !strings.Contains(out, "lab t is valid") ||
		!strings.Contains(out, "hosts.a.vm: hypervisor kvm1 does not tell which machines it runs") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := live("fast", "br9")
	for _, part := range []string{
		"lab.yaml:7:61: hypervisors.kvm1.bridges.lan: there is no interface br9: want one of eth1",
		"lab.yaml:9:69: hosts.a.vm.disks: hypervisor kvm1 has no storage pool fast: want one of default-pool",
		"the hypervisors lack what virtual machines of the lab file need: 2 errors",
	} {
		if err == nil || !strings.Contains(out, part) {
			t.Errorf("%v, no %q in\n%s", err, part, out)
		}
	}
}
