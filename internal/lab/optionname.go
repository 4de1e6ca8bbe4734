package lab

import "strings"

// OptionCode returns the number of a DHCP option by its name in dnsmasq, ISC dhcpd or Kea.
func OptionCode(name string) (code uint8, ok bool) {
	code, ok = optionCodes[strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "option:"), "s")]
	return code, ok
}

// optionCodes are options by their names in dnsmasq, ISC dhcpd and Kea, without a final s.
var optionCodes = map[string]uint8{
	"netmask": 1, "subnet-mask": 1, "time-offset": 2, "router": 3, "time-server": 4, "ien116-name-server": 5, "name-server": 5,
	"dns-server": 6, "domain-name-server": 6, "log-server": 7, "cookie-server": 8, "lpr-server": 9, "impress-server": 10, "resource-location-server": 11,
	"host-name": 12, "hostname": 12, "boot-file-size": 13, "boot-size": 13, "merit-dump": 14, "domain-name": 15, "swap-server": 16,
	"root-path": 17, "extension-path": 18, "extensions-path": 18, "ip-forward-enable": 19, "ip-forwarding": 19, "non-local-source-routing": 20,
	"policy-filter": 21, "max-datagram-reassembly": 22, "max-dgram-reassembly": 22, "default-ttl": 23, "default-ip-ttl": 23, "mtu": 26,
	"interface-mtu": 26, "all-subnets-local": 27, "broadcast": 28, "broadcast-addres": 28, "router-discovery": 31, "router-solicitation": 32,
	"router-solicitation-addres": 32, "static-route": 33, "trailer-encapsulation": 34, "arp-timeout": 35, "arp-cache-timeout": 35,
	"ethernet-encap": 36, "ieee802-3-encapsulation": 36, "tcp-ttl": 37, "default-tcp-ttl": 37, "tcp-keepalive": 38, "tcp-keepalive-interval": 38,
	"tcp-keepalive-garbage": 39, "nis-domain": 40, "nis-server": 41, "ntp-server": 42, "vendor-encapsulated-option": 43, "netbios-n": 44,
	"netbios-name-server": 44, "netbios-dd": 45, "netbios-dd-server": 45, "netbios-nodetype": 46, "netbios-node-type": 46, "netbios-scope": 47,
	"x-windows-f": 48, "font-server": 48, "x-windows-dm": 49, "x-display-manager": 49, "lease-time": 51, "dhcp-lease-time": 51,
	"t1": 58, "dhcp-renewal-time": 58, "t2": 59, "dhcp-rebinding-time": 59, "vendor-clas": 60, "vendor-class-identifier": 60,
	"nis+-domain": 64, "nisplus-domain-name": 64, "nis+-server": 65, "nisplus-server": 65, "tftp-server": 66, "tftp-server-name": 66,
	"bootfile-name": 67, "boot-file-name": 67, "mobile-ip-home": 68, "mobile-ip-home-agent": 68, "smtp-server": 69, "pop3-server": 70, "pop-server": 70,
	"nntp-server": 71, "www-server": 72, "finger-server": 73, "irc-server": 74, "user-clas": 77, "rapid-commit": 80, "client-arch": 93,
	"client-system": 93, "pxe-system-type": 93, "client-interface-id": 94, "client-machine-id": 97, "posix-timezone": 100, "pcode": 100,
	"tzdb-timezone": 101, "tcode": 101, "ipv6-only": 108, "v6-only-preferred": 108, "default-url": 114, "v4-captive-portal": 114,
	"domain-search": 119, "sip-server": 120, "classless-static-route": 121, "rfc3442-classless-static-route": 121, "vendor-id-encap": 125, "tftp-server-addres": 150,
	"ms-classless-static-route": 249, "wpad": 252,
}
