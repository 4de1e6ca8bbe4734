package tftpd_test

import (
	"strings"
	"testing"

	bootfiles "github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/tftpd"
)

// TestReloadDuringATransfer: a transfer is the machine's that had the address when it asked, though the lab gives the address to another one
// before it ends.
func TestReloadDuringATransfer(t *testing.T) { eachPort(t, testReloadDuringATransfer) }

func testReloadDuringATransfer(t *testing.T, single bool) {
	const before = `
version: 1
domain: example
networks: {n: {subnet: 127.0.0.0/8, interface: br0, address: 127.0.0.77}}
profiles: {p: {kernel: images/one}}
hosts: {a: {mac: "52:54:00:00:02:01", ip: 127.0.0.1, profile: p}}
`
	s := newTestServer(t, testConfig{single: single, lab: before})
	c := newClient(t, s.addr)
	c.send(request("images/one", "octet"))
	c.data(1)
	after, err := load.Parse("lab.yaml", []byte(strings.Replace(before, "02:01", "02:02", 1)), load.Options{FileExists: func(string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	files, err := bootfiles.Compile(after)
	if err != nil {
		t.Fatal(err)
	}
	s.table.Store(tftpd.Compile(after, files))
	c.ack(1)
	if got := s.events.next(t).MAC; got != mac {
		t.Errorf("the transfer is that of %s, want %s", got, mac)
	}
}
