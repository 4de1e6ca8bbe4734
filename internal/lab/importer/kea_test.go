package importer_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
)

// keaText returns a configuration of Kea with one subnet.
func keaText(global, subnet string) string {
	return `{"Dhcp4": {` + global + `"interfaces-config": {"interfaces": ["eth0"]}, "valid-lifetime": 4000, "option-data": [{"name": "domain-name", "data": "lab.example"}],
"subnet4": [{"id": 1, "subnet": "10.1.2.0/24"` + subnet + `}]}}`
}

// becomes imports a text, and compares the lab, of which want is a part, and the notes.
func becomes(t *testing.T, format importer.Format, text, want string, notes ...string) {
	t.Helper()
	r, err := importer.Text(format, "x", []byte(text), importer.Options{Check: check})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(r.Lab), want) {
		t.Errorf("want %s in\n%s", want, r.Lab)
	}
	for i, n := range r.Notes {
		if i >= len(notes) || !strings.Contains(n.String(), notes[i]) {
			t.Errorf("note %s, want %v", n, notes)
		}
	}
	if len(r.Notes) < len(notes) {
		t.Errorf("%d notes, want %q", len(r.Notes), notes)
	}
}

// TestRelayedSubnetOfKea: a relayed subnet needs no interface. It is served if another network says where the relay reaches this machine.
func TestRelayedSubnetOfKea(t *testing.T) {
	t.Parallel()
	const far = `{"id": 2, "subnet": "10.1.3.0/24", "relay": {"ip-addresses": ["10.1.3.1"]}}`
	becomes(t, importer.Kea, keaText("", "}, "+strings.TrimSuffix(far, "}")), "  lan-2: {subnet: 10.1.3.0/24, lease: 4000s}\n",
		"10.1.3.0/24: network lan-2 is served through its DHCP relay, and needs no interface")
	becomes(t, importer.Kea, `{"Dhcp4": {"option-data": [{"name": "domain-name", "data": "lab.example"}], "subnet4": [`+far+`]}}`, "  lan: {subnet: 10.1.3.0/24, dhcp: off}\n",
		"network lan is served through its DHCP relay, and needs no interface: add the network that the relay reaches this machine in, with its address, and remove dhcp: off")
}

// TestTimesOfKea: clients renew and rebind when RFC 2131 says, so other times are notes.
func TestTimesOfKea(t *testing.T) {
	t.Parallel()
	becomes(t, importer.Kea, keaText(`"renew-timer": 1000, "rebind-timer": 3000, `, ""), "lease: 4000s",
		"renew-timer: 1000: clients renew after half of the lease (RFC 2131): it is left out", "rebind-timer: 3000: clients rebind after 7/8 of the lease")
	becomes(t, importer.Kea, keaText(`"renew-timer": 2000, "rebind-timer": 3500, `, ""), "lease: 4000s")
}

// TestNoDomain: a domain that is in no file is a note.
func TestNoDomain(t *testing.T) {
	t.Parallel()
	becomes(t, importer.Kea, `{"Dhcp4": {"interfaces-config": {"interfaces": ["eth0"]}, "subnet4": [{"subnet": "10.1.2.0/24"}]}}`, "domain: lab.internal\n",
		"no domain is in the file: lab.internal stands for it: set domain")
}

// TestReservationWithoutMAC: the note names what the reservation has.
func TestReservationWithoutMAC(t *testing.T) {
	t.Parallel()
	becomes(t, importer.Kea, keaText("", `, "reservations": [{"client-id": "01:02", "ip-address": "10.1.2.9"}]`), "lan",
		"client-id: 01:02: there is no equivalent", "x:2: reservation 10.1.2.9: machines are known by MAC")
}

// TestDefinedOptions: an option has the bytes that its definition in the file gives it.
func TestDefinedOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ def, data, want string }{
		{`"type": "uint8"`, "77", "u8:77"},
		{`"type": "uint16"`, "77", "u16:77"},
		{`"type": "uint32"`, "77", "u32:77"},
		{`"type": "int32"`, "-1", "u32:4294967295"},
		{`"type": "uint16", "array": true`, "1, 2", "hex:00010002"},
		{`"type": "boolean"`, "true", "u8:1"},
		{`"type": "string"`, "77", "text:77"},
		{`"type": "string"`, "a, b", "text:a, b"},
		{`"type": "ipv4-address"`, "10.0.0.1", "10.0.0.1"},
		{`"type": "ipv4-address", "array": true`, "10.0.0.1, 10.0.0.2", "10.0.0.1, 10.0.0.2"},
		{`"type": "binary"`, "0A0B", "hex:0a0b"},
		{`"type": "binary"`, "0x0A0B", "hex:0a0b"},
		{`"type": "binary"`, "'AB'", "hex:4142"},
		{`"type": "fqdn"`, "a.b.", "hex:0161016200"},
		{`"type": "record", "record-types": "uint16, ipv4-address, string"`, "7, 10.0.0.1, x", "hex:00070a00000178"},
		{`"type": "uint32"`, "4D", ""},
		{`"type": "ipv6-address"`, "fd00::1", "hex:fd000000000000000000000000000001"},
		{`"type": "tuple"`, "x", ""},
	} {
		for _, csv := range []string{"", `, "csv-format": true`} {
			text := keaText(`"option-def": [{"name": "foo", "code": 222, `+tt.def+`}], `, `, "option-data": [{"name": "foo", "data": "`+tt.data+`"`+csv+`}]`)
			if tt.want == "" {
				becomes(t, importer.Kea, text, "lan", "option 222 is left out: ")
				continue
			}
			want := tt.want
			if strings.Contains(want, ",") {
				want = `"` + want + `"`
			}
			becomes(t, importer.Kea, text, `"222": `+want+"}")
		}
	}
	bytes := keaText("", `, "option-data": [{"code": 225, "csv-format": false, "data": "0A0B"}, {"code": 226, "data": "0A 0B"}, {"code": 227, "data": "0x0A0B"}, {"code": 66, "csv-format": false, "data": "6162"}]`)
	becomes(t, importer.Kea, bytes, `options: {"66": text:ab, "225": hex:0a0b, "226": hex:0a0b, "227": hex:0a0b}`)
	becomes(t, importer.Kea, keaText("", `, "option-data": [{"name": "routers", "csv-format": false, "data": "0A0102FE"}]`), "router: 10.1.2.254")
}

// TestDefinedOptionsOfDHCPD is TestDefinedOptions for ISC dhcpd.
func TestDefinedOptionsOfDHCPD(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ def, data, want string }{
		{"unsigned integer 32", "77", "u32:77"},
		{"integer 16", "77", "u16:77"},
		{"signed integer 8", "-1", "u8:255"},
		{"array of unsigned integer 16", "1, 2", "hex:00010002"},
		{"boolean", "on", "u8:1"},
		{"text", `"77"`, "text:77"},
		{"string", `"77"`, "text:77"},
		{"string", "0a:b", "hex:0a0b"},
		{"ip-address", "10.0.0.1", "10.0.0.1"},
		{"array of ip-address", "10.0.0.1, 10.0.0.2", `"10.0.0.1, 10.0.0.2"`},
		{"domain-list", `"a.b"`, "hex:0161016200"},
		{"{ unsigned integer 8, ip-address }", "7 10.0.0.1", "hex:070a000001"},
		{"encapsulate x", "1", ""},
	} {
		text := "option domain-name \"lab.example\";\noption foo code 222 = " + tt.def + ";\nsubnet 10.1.2.0 netmask 255.255.255.0 { interface eth0; option foo " + tt.data + "; }\n"
		if tt.want == "" {
			becomes(t, importer.DHCPD, text, "lan", "option 222 is left out: ")
			continue
		}
		becomes(t, importer.DHCPD, text, `"222": `+tt.want+"}")
	}
}
