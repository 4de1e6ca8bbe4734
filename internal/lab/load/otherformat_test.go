package load_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestOtherFormats: the configuration of another server is one error, which says how to import it.
func TestOtherFormats(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"haproxy.cfg":              {"# a comment\nglobal\n    maxconn 4000\nfrontend f\n    bind :80\n", "haproxy.cfg:2:1: a configuration of HAProxy, not a lab file: bootlab import haproxy haproxy.cfg prints one made from it"},
		"listen.cfg":               {"listen l\n  bind :80\n  http-request deny if { path /: }\n", "listen.cfg:1:1: a configuration of HAProxy"},
		"dnsmasq.conf":             {"interface=br0\ndhcp-range=10.0.0.5,10.0.0.9\n", "dnsmasq.conf:1:1: a configuration of dnsmasq, not a lab file: bootlab import dnsmasq dnsmasq.conf"},
		"dhcpd.conf":               {"authoritative;\nsubnet 10.0.0.0 netmask 255.255.255.0 {\n}\n", "dhcpd.conf:2:1: a configuration of ISC dhcpd, not a lab file: bootlab import dhcpd dhcpd.conf"},
		"lab.yaml":                 {"version: 1\ndomain: lab.example\nglobal\n", "lab.yaml:3:"},
		"lab-without-version.yaml": {"domain: lab.example\nhosts\n", "lab-without-version.yaml:1:1: version"},
	} {
		_, err := load.Parse(name, []byte(tt.text), load.Options{FileExists: noFiles})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(tt.want, "import") && strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
