package dnsd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
)

// TestResolvConf: the servers of a file are asked, but never this appliance itself.
func TestResolvConf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want, warning string }{
		{"as the installer writes it", "# a comment\nsearch example.org\nnameserver 9.9.9.9\noptions edns0 trust-ad\nnameserver 2620:fe::fe\n", "9.9.9.9:53 [2620:fe::fe]:53", ""},
		{"link-local", "nameserver fe80::1%eth0\n", "[fe80::1%eth0]:53", ""},
		{"tabs, carriage returns, rubbish", "nameserver\t9.9.9.9\r\nnameserver\nnameserver nine\nNAMESERVER 8.8.8.8\n;nameserver 1.1.1.1", "9.9.9.9:53", ""},
		{"this appliance among others", "nameserver 127.0.0.1\nnameserver 192.168.131.10\nnameserver ::1\nnameserver 0.0.0.0\nnameserver 9.9.9.9\n", "9.9.9.9:53", ""},
		{"systemd-resolved", "nameserver 127.0.0.53\n", "127.0.0.53:53", ""},
		{"this appliance alone", "nameserver 127.0.0.1\n", "", "dns.forward: /etc/resolv.conf names only this appliance itself: no server of it is asked"},
		{"empty", "", "", "dns.forward: /etc/resolv.conf names no server"},
		{"missing", "MISSING", "", "dns.forward: no server of it is asked: no such file"},
		{"long", strings.Repeat("nameserver 9.9.9.9\n", 100), strings.TrimSpace(strings.Repeat("9.9.9.9:53 ", lab.MaxNameServers)), ""},
	} {
		l := forwardingLab()
		l.Appliance.DNS = lab.Listen{netip.MustParseAddrPort("127.0.0.1:53"), netip.AddrPortFrom(netip.Addr{}, 53)}
		l.DNS.Forward = []lab.NameServer{{File: "/etc/resolv.conf"}}
		table, err := Compile(l, func(string, string) ([]byte, error) {
			if tt.text == "MISSING" {
				return nil, errNoFile
			}
			return []byte(tt.text), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range table.forwards[0].servers {
			got = append(got, s.String())
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		warning := ""
		for _, w := range table.Warnings() {
			warning += strings.TrimPrefix(w.Error(), ":0:0: ")
		}
		if !strings.HasSuffix(warning, tt.warning) || tt.warning == "" && warning != "" {
			t.Errorf("%s: warning %q, want %q", tt.name, warning, tt.warning)
		}
		if diff := cmp.Diff([]string{"/etc/resolv.conf"}, table.Files()); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", tt.name, diff)
		}
	}
}
