package load_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestQuoteMarksTheValue: what is found at an entry, after the lab file was read, is marked at the value that the key names.
func TestQuoteMarksTheValue(t *testing.T) {
	t.Parallel()
	const text = `networks:
  mgmt:
    subnet: 10.1.2.0/24
    interface: br0
hosts:
  v1: {mac: 02:00:00:00:00:01, vm: {hypervisor: k, firmware: uefi-secure, disks: [{size: 1GiB, pool: fast}]}}
  base: &b {ip: 10.1.2.9}
  same: *b
dns:
  zones:
    a.b: {records: [x]}
    a.b.c: {records: [y]}
`
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line, column int
		key, want    string
	}{
		{2, 3, "networks.mgmt.interface", "4:16"},
		{6, 3, "hosts.v1.vm.firmware", "6:62"},
		{6, 3, "hosts.v1.vm.disks[0].pool", "6:102"},
		{11, 5, "dns.zones.a.b.records", "11:20"},
		{12, 5, "dns.zones.a.b.c.records", "12:22"},
		{2, 3, "networks.mgmt.address", "2:3"},     // not there
		{3, 5, "networks.mgmt.subnet", "3:13"},     // at its key
		{4, 16, "networks.mgmt.interface", "4:16"}, // at its value already
		{2, 3, "hosts.v1.mac", "2:3"},              // of another entry
		{8, 3, "hosts.same.ip", "8:3"},             // of an alias
		{2, 3, "zone x", "2:3"},
	} {
		p := &lab.Problem{Pos: lab.Pos{File: file, Line: tt.line, Column: tt.column}, Key: tt.key}
		load.Quote(lab.Problems{p})
		if got := fmt.Sprintf("%d:%d", p.Pos.Line, p.Pos.Column); got != tt.want || !strings.Contains(text, p.Source+"\n") {
			t.Errorf("%s at %d:%d: got %s, want %s", tt.key, tt.line, tt.column, got, tt.want)
		}
	}
}
