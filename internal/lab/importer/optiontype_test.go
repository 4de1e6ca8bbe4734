package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
)

// TestOptionTypes: the type that the file gives an option decides about its bytes. An option of Kea that nothing defines has its bytes.
func TestOptionTypes(t *testing.T) {
	t.Parallel()
	kea := func(def, data string) string {
		return `{"Dhcp4": {"option-def": [` + def + `], "subnet4": [{"id": 1, "subnet": "10.1.2.0/24", "option-data": [` + data + `]}]}}`
	}
	def := func(kind string) string { return `{"name": "foo", "code": 222, "type": "` + kind + `"}` }
	dhcpd := func(kind, data string) string {
		return "option foo code 222 = " + kind + ";\nsubnet 10.1.2.0 netmask 255.255.255.0 { option foo " + data + "; }\n"
	}
	for name, tt := range map[string]struct {
		format importer.Format
		text   string
		want   string // the value of option 222, or a line of the network
		note   string
	}{
		"kea uint8":               {importer.Kea, kea(def("uint8"), `{"name": "foo", "data": "77"}`), "u8:77", ""},
		"kea uint16":              {importer.Kea, kea(def("uint16"), `{"name": "foo", "data": "77"}`), "u16:77", ""},
		"kea uint32, by code":     {importer.Kea, kea(def("uint32"), `{"code": 222, "data": "77"}`), "u32:77", ""},
		"kea int32":               {importer.Kea, kea(def("int32"), `{"name": "foo", "data": "-1"}`), "u32:4294967295", ""},
		"kea int8 out of range":   {importer.Kea, kea(def("int8"), `{"name": "foo", "data": "-300"}`), "", `"-300" is not a number of 8 bits`},
		"kea boolean":             {importer.Kea, kea(def("boolean"), `{"name": "foo", "data": "true"}`), "u8:1", ""},
		"kea no boolean":          {importer.Kea, kea(def("boolean"), `{"name": "foo", "data": "maybe"}`), "", `"maybe" is not true or false`},
		"kea address":             {importer.Kea, kea(def("ipv4-address"), `{"name": "foo", "data": "10.0.0.1"}`), `"222": 10.0.0.1`, ""},
		"kea string of digits":    {importer.Kea, kea(def("string"), `{"name": "foo", "data": "77"}`), "text:77", ""},
		"kea name":                {importer.Kea, kea(def("fqdn"), `{"name": "foo", "data": "a.example"}`), "hex:0161076578616d706c6500", ""},
		"kea binary":              {importer.Kea, kea(def("binary"), `{"name": "foo", "data": "0A0B"}`), "hex:0a0b", ""},
		"kea binary that is none": {importer.Kea, kea(def("binary"), `{"name": "foo", "data": "xyz"}`), "", `"xyz": want bytes such as 0A0B`},
		"kea array":               {importer.Kea, kea(`{"name": "foo", "code": 222, "type": "uint16", "array": true}`, `{"name": "foo", "data": "1, 2"}`), "hex:00010002", ""},
		"kea record":              {importer.Kea, kea(`{"name": "foo", "code": 222, "type": "record", "record-types": "uint8, string"}`, `{"name": "foo", "data": "1, a"}`), "hex:0161", ""},
		"kea bytes":               {importer.Kea, kea(def("uint32"), `{"name": "foo", "data": "0A0B", "csv-format": false}`), "hex:0a0b", ""},
		"kea bytes, undefined":    {importer.Kea, kea("", `{"code": 222, "data": "0A0B", "csv-format": false}`), "hex:0a0b", ""},
		"kea bytes with 0x":       {importer.Kea, kea("", `{"code": 222, "data": "0x0A0B", "csv-format": false}`), "hex:0a0b", ""},
		"kea bytes of the router": {importer.Kea, kea("", `{"name": "routers", "data": "0A0102FE", "csv-format": false}`), "router: 10.1.2.254", ""},
		"kea bytes of the MTU":    {importer.Kea, kea("", `{"code": 26, "data": "0578", "csv-format": false}`), "mtu: 1400", ""},
		"kea undefined":           {importer.Kea, kea("", `{"code": 222, "data": "77"}`), "hex:77", ""},
		"kea of another space":    {importer.Kea, kea(`{"name": "foo", "code": 222, "type": "uint32", "space": "mine"}`, `{"code": 222, "data": "77"}`), "hex:77", ""},
		"dhcpd 32 bits":           {importer.DHCPD, dhcpd("unsigned integer 32", "77"), "u32:77", ""},
		"dhcpd 16 bits":           {importer.DHCPD, dhcpd("integer 16", "77"), "u16:77", ""},
		"dhcpd signed":            {importer.DHCPD, dhcpd("signed integer 16", "-1"), "u16:65535", ""},
		"dhcpd boolean":           {importer.DHCPD, dhcpd("boolean", "on"), "u8:1", ""},
		"dhcpd text":              {importer.DHCPD, dhcpd("text", `"77"`), "text:77", ""},
		"dhcpd string of bytes":   {importer.DHCPD, dhcpd("string", "0a:b"), "hex:0a0b", ""},
		"dhcpd addresses":         {importer.DHCPD, dhcpd("array of ip-address", "10.0.0.1, 10.0.0.2"), `"222": "10.0.0.1, 10.0.0.2"`, ""},
		"dhcpd array":             {importer.DHCPD, dhcpd("array of unsigned integer 8", "1, 2"), "hex:0102", ""},
		"dhcpd names":             {importer.DHCPD, dhcpd("domain-list", `"a.example", "b.example"`), "hex:0161076578616d706c65000162076578616d706c6500", ""},
		"dhcpd record":            {importer.DHCPD, dhcpd("{ ip-address, integer 8 }", "10.0.0.1 3"), "hex:0a00000103", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
			if err != nil {
				t.Fatal(err)
			}
			if lab := string(r.Lab); !strings.Contains(lab, tt.want) || tt.want == "" && strings.Contains(lab, "options") {
				t.Errorf("want %q in\n%s", tt.want, lab)
			}
			if notes := fmt.Sprint(r.Notes); !strings.Contains(notes, tt.note) || tt.note == "" && strings.Contains(notes, "left out") {
				t.Errorf("want the note %q, not\n%s", tt.note, notes)
			}
		})
	}
}
