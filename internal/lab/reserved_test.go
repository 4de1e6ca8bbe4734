package lab_test

import (
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestReservedName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"wpad": true, "wpad.dev": true, "isatap": true, "localhost": true, "localhost.x": true, "*": true, "*.apps": true,
		"autodiscover": true, "autoconfig.dev": true, "localdomain": true, "broadcasthost": true, "ip6-localhost": true, "ip6-loopback": true, "ip6-allnodes": true,
		"mail": false, "ldap": false, "ns1": false, "ip6-host": false,
		"bootlab": true, "ns": true, "ns.dev": false, "bootlab.dev": false,
		"api": true, "api-int": true, "api.dev": false, "api-int.dev": false,
		"_acme-challenge": false, "_acme-challenge.api": false, "_acme-challenge.apps": false, "www": false, "api2": false, "x.wpad": false,
	} {
		if got := lab.ReservedName(name); got != want {
			t.Errorf("ReservedName(%q) = %v, want %v", name, got, want)
		}
	}
}
