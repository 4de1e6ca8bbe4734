package load

import (
	"bytes"
	"regexp"

	"go.yaml.in/yaml/v4"
)

// otherFormats are how lines begin that the configuration of another server has and no lab file.
var otherFormats = []struct {
	server, format string // the format is that of bootlab import
	line           *regexp.Regexp
}{
	{"HAProxy", "haproxy", regexp.MustCompile(`(?m)^(global|defaults|(frontend|backend|listen|defaults)[ \t]+[^\s:]+)[ \t]*(#.*)?\r?$`)},
	{"dnsmasq", "dnsmasq", regexp.MustCompile(`(?m)^(interface|dhcp-range|dhcp-host|dhcp-option|dhcp-boot|listen-address|domain|server|address|host-record)=`)},
	{"ISC dhcpd", "dhcpd", regexp.MustCompile(`(?m)^\s*subnet\s+[0-9.]+\s+netmask\s+[0-9.]+\s*\{`)},
}

// mapKey matches a key of a lab file's top level.
var mapKey = regexp.MustCompile(`(?m)^[A-Za-z_]+:(\s|$)`)

// otherFormat reports a file that is the configuration of another server.
func (d *decoder) otherFormat(name string, data []byte) bool {
	if mapKey.Match(data) {
		return false
	}
	for _, f := range otherFormats {
		if at := f.line.FindIndex(data); at != nil {
			d.broken = true
			line := &yaml.Node{Line: 1 + bytes.Count(data[:at[0]], []byte("\n")), Column: 1}
			d.problem(line, "a configuration of %s, not a lab file: bootlab import %s %s prints one made from it", f.server, f.format, name)
			return true
		}
	}
	return false
}
