package leasefile

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

var same = cmpopts.EquateComparable(netip.Addr{})

func mac(last byte) lab.MAC { return lab.MAC{0x52, 0x54, 0, 0x2c, 1, last} }

func ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 16, last}) }

// end is a time that every format can have.
var end = time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)

// TestParse reads files as Kea and dnsmasq write them.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		format     Format
		want       []api.Lease
		skipped    []string
	}{
		{"Kea 2.2", keaHeader +
			"192.168.16.1,52:54:00:2c:01:01,01:52:54:00:2c:01:01,3600,1795359845,1,0,0,host.lab.example.,0,\n" +
			"192.168.16.2,52:54:00:2c:01:02,,3600,1795359845,1,0,0,,1,{ \"comment\": \"a&#x2cb\" }\n", Kea,
			[]api.Lease{
				{IP: ip(1), MAC: mac(1), ClientID: "01:52:54:00:2c:01:01", Name: "host.lab.example", State: api.LeaseActive, Since: end.Add(-time.Hour), Expires: end},
				{IP: ip(2), MAC: mac(2), State: api.LeaseDeclined, Since: end.Add(-time.Hour), Expires: end},
			}, nil},
		{"Kea 1.0, a log", "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname\n" +
			"192.168.16.1,52:54:00:2c:01:01,,3600,1795359845,1,0,0,old\n" +
			"192.168.16.2,52:54:00:2c:01:02,,3600,1795359845,1,0,0,gone\n" +
			"192.168.16.2,52:54:00:2c:01:02,,0,1795359845,1,0,0,gone\n" +
			"192.168.16.1,52:54:00:2c:01:03,,4294967295,6090327140,1,0,0,new\n", Kea,
			[]api.Lease{{IP: ip(1), MAC: mac(3), Name: "new", State: api.LeaseActive, Since: end, Never: true}}, nil},
		{"Kea 3.0, more columns; no MAC, token ring", strings.TrimSpace(keaHeader) + ",pool_id\n" +
			"192.168.16.1,52:54:00:2c:01:01,,3600,1795359845,1,0,0,,0,,7\n" +
			"192.168.16.2,,,3600,1795359845,1,0,0,,1,,0\n" +
			"192.168.16.3,00:01:02:03:04:05:06:07,,3600,1795359845,1,0,0,,0,,0\n", Kea,
			[]api.Lease{{IP: ip(1), MAC: mac(1), State: api.LeaseActive, Since: end.Add(-time.Hour), Expires: end}},
			[]string{"192.168.16.2 no MAC", "192.168.16.3 hardware address 00:01:02:03:04:05:06:07 is not of Ethernet"}},
		{"dnsmasq", "1795359845 52:54:00:2c:01:01 192.168.16.1 host 01:52:54:00:2c:01:01\n0 52:54:00:2c:01:02 192.168.16.2 * *\n" +
			"1795359845 06-52:54:00:2c:01:02 192.168.16.3 * *\nduid 00:01:00:01:2e\n1795359845 4711 fd00::1 host 00:01:00:01\n", Dnsmasq,
			[]api.Lease{
				{IP: ip(1), MAC: mac(1), Name: "host", ClientID: "01:52:54:00:2c:01:01", State: api.LeaseActive, Expires: end},
				{IP: ip(2), MAC: mac(2), State: api.LeaseActive, Never: true},
			}, []string{"192.168.16.3 hardware address 06-52:54:00:2c:01:02 is not of Ethernet", "fd00::1 not an IPv4 address"}},
		{"CSV by hand", "ip,mac,expires,notes\n192.168.16.1,52-54-00-2C-01-01,2026-11-22T17:04:05+02:00,\"the printer, upstairs\"\n192.168.16.2,52:54:00:2c:01:02,never\n", CSV,
			[]api.Lease{{IP: ip(1), MAC: mac(1), Expires: end}, {IP: ip(2), MAC: mac(2), Never: true}}, nil},
		{"JSON of bootlab leases --json", `[{"ip":"192.168.16.1","mac":"52:54:00:2c:01:01","state":"active","expires":"2026-11-22T16:04:05.123+01:00"},
			{"ip":"192.168.16.2","mac":"52:54:00:2c:01:02","never":true}, {"ip":"192.168.16.3","mac":"52:54:00:2c:01:03","state":"released"},
			{"ip":"192.168.16.9","mac":"00:00:00:00:00:00","state":"conflict"}]`, JSON,
			[]api.Lease{{IP: ip(1), MAC: mac(1), State: api.LeaseActive, Expires: end}, {IP: ip(2), MAC: mac(2), Never: true}, {IP: ip(3), MAC: mac(3), State: api.LeaseReleased}},
			[]string{"192.168.16.9 no MAC"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if f, err := Detect([]byte(tt.text)); err != nil || f != tt.format {
				t.Errorf("detected %q, %v", f, err)
			}
			got, err := Parse([]byte(tt.text), tt.format)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Leases, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var skipped []string
			for _, s := range got.Skipped {
				skipped = append(skipped, s.IP.String()+" "+s.Reason)
			}
			if diff := cmp.Diff(tt.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseErrors: the error names the line and what is wrong there.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format    Format
		text, err string
	}{
		{Kea, "address,hwaddr\n", "line 1: there is no column valid_lifetime"},
		{Kea, keaHeader + "192.168.16.300,52:54:00:2c:01:01,,1,1,1,0,0,,0,\n", `line 2: "192.168.16.300" is not an address`},
		{Kea, keaHeader + "192.168.16.1,52:54:00:2c:01:01,,x,1,1,0,0,,0,\n", `line 2: valid_lifetime "x" is not a number up to 4294967295`},
		{Kea, keaHeader + "192.168.16.1,52:54:00:2c:01:01,,1,1,1,0,0,,9,\n", `line 2: state "9" is not a number up to 3`},
		{Kea, keaHeader + "192.168.16.1,52:54:00:2c:01:01,,1,1", ``},
		{Kea, keaHeader + "192.168.16.1,52:54", `line 2: valid_lifetime "" is not a number`},
		{Dnsmasq, "1795359845 52:54:00:2c:01:01 192.168.16.1 host", "line 1: 4 words, want 5"},
		{Dnsmasq, "soon 52:54:00:2c:01:01 192.168.16.1 host *", `line 1: "soon" is not a time in seconds`},
		{Dnsmasq, "\n1 52:54:00:2c:01:0g 192.168.16.1 host *", `line 2: "52:54:00:2c:01:0g" is not a MAC address`},
		{Dnsmasq, "1 52:54:00:2c:01:01 192.168.16.1 host 01:xx", `line 1: client id "01:xx" is not`},
		{CSV, "", "line 1: want the names of columns"},
		{CSV, "ip,mac\n", "line 1: there is no column expires"},
		{CSV, "ip,mac,expires\n192.168.16.1,52:54:00:2c:01:01,tomorrow\n", `line 2: expires "tomorrow" is not a time such as`},
		{CSV, "ip,mac,expires,state\n192.168.16.1,52:54:00:2c:01:01,,gone\n", `line 2: "gone" is not the state of a lease`},
		{CSV, "ip,mac,expires\n192.168.16.1,52:54:00:2c:01:01,never\n192.168.16.2,52:54:00:2c:01:02\n", `line 3: there is no expires: want a time such as 2026-11-22T15:04:05Z, or never`},
		{CSV, "ip,mac,expires\n192.168.16.1,52:54:00:2c:01:01,\n", `line 2: there is no expires: want`},
		{JSON, "[{\"ip\":\"192.168.16.1\",\"mac\":\"52:54:00:2c:01:01\",\"never\":true},\n\n {\"ip\":\"192.168.16.2\",\n  \"mac\":\"52:54:00:2c:01:02\"}]", `line 3: there is no expires: want a time such as "2026-11-22T15:04:05Z", or "never": true`},
		{JSON, `[{"ip":"192.168.16.1","mac":"52:54:00:2c:01:01","expires":"2026-11-22T15:04:05Z","never":true}]`, "line 1: there are expires and never: want one of them"},
		{JSON, `[{"ip":"192.168.16.1","mac":"52:54:00:2c:01:01"`, "line 1: not a list of leases"},
		{JSON, "{}", "not a list of leases"},
		{JSON, "[] []", "something follows the list of leases"},
		{JSON, `[{"ip":"192.168.16.1","mac":"52:54:00:2c:01:01","expires":"1815-01-01T00:00:00Z"}]`, "line 1: 1815-01-01T00:00:00Z is no time between"},
		{"isc", "", `"isc" is not a format of lease files`},
	} {
		if tt.err == "" {
			continue // a cut line that is whole as far as it goes
		}
		if _, err := Parse([]byte(tt.text), tt.format); err == nil || !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s %q: %v, want %q", tt.format, tt.text, err, tt.err)
		}
	}
	const isc = "it is a lease file of ISC dhcpd, which is not imported: "
	for text, want := range map[string]string{"": "it is empty", " \n\t": "it is empty",
		"lease 10.0.0.1 {": isc, "# The format of this file is documented in the dhcpd.leases(5) manual page.\n# more\n": isc, "authoring-byte-order little-endian;\n": isc, "x": "it is in no format that bootlab knows", "\x00\x01": "it is in no format"} {
		if f, err := Detect([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
}

// TestSpreadsheets: what spreadsheets make of CSV is detected and read: a byte order mark, other separators, quotes, other columns, rows
// without a value.
func TestSpreadsheets(t *testing.T) {
	t.Parallel()
	const text, quoted = "ip,mac,expires\r\n192.168.16.1,52:54:00:2c:01:01,never\r\n", "\"ip\",\"mac\",\"expires\"\n\"192.168.16.1\",\"52:54:00:2c:01:01\",\"never\"\n"
	const mark, expires = byteOrderMark, "Expires, IP ,MAC\nnever,192.168.16.1,52:54:00:2c:01:01\n"
	semicolons := strings.ReplaceAll(quoted, ",", ";")
	for _, text := range []string{
		text, mark + text, quoted, mark + quoted, semicolons, mark + semicolons, strings.ReplaceAll(text, ",", "\t"), "sep=;\r\n" + semicolons, mark + "sep=;\n" + semicolons,
		expires, text + ",,\r\n\r\n",
	} {
		if f, err := Detect([]byte(text)); f != CSV || err != nil {
			t.Errorf("%q: detected %q, %v", text, f, err)
		}
		if file, err := Parse([]byte(text), CSV); err != nil || len(file.Leases) != 1 || file.Leases[0].IP != netip.MustParseAddr("192.168.16.1") || !file.Leases[0].Never {
			t.Errorf("%q: %+v, %v", text, file, err)
		}
	}
	if _, err := Detect([]byte("\xff\xfei\x00p\x00")); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Errorf("UTF-16: %v", err)
	}
}

// TestByteOrderMark: any format may begin with a byte order mark.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	for f, text := range map[Format]string{JSON: "\ufeff[{\"ip\":\"192.168.16.1\",\"mac\":\"52:54:00:2c:01:01\",\"never\":true}]", Dnsmasq: "\ufeff0 52:54:00:2c:01:01 192.168.16.1 * *\n"} {
		if file, err := Parse([]byte(text), f); err != nil || len(file.Leases) != 1 {
			t.Errorf("%s: %+v, %v", f, file, err)
		}
	}
}

// TestFormula: no cell makes a spreadsheet evaluate what a machine sent.
func TestFormula(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"=1+2", "+1", "-1", "@x", "'", "'=x", "\tx", "x=1"} {
		var b bytes.Buffer
		l := []api.Lease{{IP: ip(1), MAC: mac(1), VendorClass: vendor, Never: true}}
		if err := Write(&b, CSV, l, Options{}); err != nil {
			t.Fatal(err)
		}
		for cell := range strings.SplitSeq(strings.SplitAfter(b.String(), "\n")[1], ",") {
			if cell = strings.TrimPrefix(cell, `"`); cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("%q is written as %q", vendor, cell)
			}
		}
		f, err := Parse(b.Bytes(), CSV)
		if err != nil || len(f.Leases) != 1 || f.Leases[0].VendorClass != vendor {
			t.Errorf("%q comes back as %+v, %v", vendor, f, err)
		}
	}
}

// FuzzParse: what a parser takes are IPv4 leases of Ethernet machines, and written again they are the same.
func FuzzParse(f *testing.F) {
	f.Add(1, keaHeader+"192.168.16.1,52:54:00:2c:01:01,01:52,3600,1795359845,1,0,0,host,0,\n192.168.16.2,,,4294967295,0,1,1,1,h&#x2c,1,x\n")
	f.Add(2, "1795359845 52:54:00:2c:01:01 192.168.16.1 host 01:52\n0 06-52 192.168.16.2 * *\nduid 00\n1 1 fd00::1 * *\n")
	f.Add(0, "ip,mac,expires,state,vendor_class\n192.168.16.1,52:54:00:2c:01:01,2026-11-22T15:04:05Z,active,\"=a\"\"b\"\n")
	f.Add(0, "ip,mac,expires,state\n192.168.16.1,52:54:00:2c:01:01,never,active\n192.168.16.2,52:54:00:2c:01:01,,released\n")
	f.Add(3, `[{"ip":"::ffff:192.168.16.1","mac":"52:54:00:2c:01:01","hostname":"ü","since":"2026-11-22T15:04:05.5+01:00"}]`)
	formats := []Format{CSV, Kea, Dnsmasq, JSON}
	f.Fuzz(func(t *testing.T, n int, text string) {
		format := formats[uint(n)%uint(len(formats))]
		_, _ = Detect([]byte(text))
		first, err := Parse([]byte(text), format)
		if err != nil {
			return
		}
		for _, l := range first.Leases {
			if !l.IP.Is4() || l.MAC.IsZero() {
				t.Fatalf("%+v", l)
			}
		}
		var b bytes.Buffer
		if err := Write(&b, format, first.Leases, Options{SubnetIDs: map[string]int{"": 1}}); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(b.Bytes(), format)
		if err != nil || len(again.Skipped) > 0 {
			t.Fatalf("%v, skipped %v:\n%s", err, again, b.String())
		}
		if diff := cmp.Diff(first.Leases, again.Leases, same, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-first +again):\n%s\n%s", diff, b.String())
		}
	})
}

// TestWrite: what Kea and dnsmasq read, column by column: a lease that ends, one that never does, one of which it is not known when it began,
// and one that ended in 1970, which is not 0 in a file of dnsmasq: that is never.
func TestWrite(t *testing.T) {
	t.Parallel()
	end := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) // 4102444800
	leases := []api.Lease{
		{IP: ip(1), MAC: mac(1), ClientID: "01:52", Name: "host", State: api.LeaseActive, Since: end.Add(-2 * time.Hour), Expires: end, Network: "lan"},
		{IP: ip(2), MAC: mac(2), State: api.LeaseActive, Since: time.Unix(1000, 0), Never: true, Network: "lan"},
		{IP: ip(3), MAC: mac(3), Name: "a b", State: api.LeaseActive, Expires: end, Network: "lan"},
		{IP: ip(4), MAC: mac(4), State: api.LeaseDeclined, Expires: time.Unix(0, 0), Network: "lan"},
	}
	for format, want := range map[Format]string{
		Kea: keaHeader +
			"192.168.16.1,52:54:00:2c:01:01,01:52,7200,4102444800,7,0,0,host,0,\n" +
			"192.168.16.2,52:54:00:2c:01:02,,4294967295,4294968295,7,0,0,,0,\n" +
			"192.168.16.3,52:54:00:2c:01:03,,4102444800,4102444800,7,0,0,,0,\n" +
			"192.168.16.4,52:54:00:2c:01:04,,1,0,7,0,0,,1,\n",
		Dnsmasq: "4102444800 52:54:00:2c:01:01 192.168.16.1 host 01:52\n" +
			"0 52:54:00:2c:01:02 192.168.16.2 * *\n" +
			"4102444800 52:54:00:2c:01:03 192.168.16.3 * *\n" +
			"1 52:54:00:2c:01:04 192.168.16.4 * *\n",
	} {
		var got bytes.Buffer
		if err := Write(&got, format, leases, Options{SubnetIDs: map[string]int{"lan": 7}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", format, diff)
		}
	}
}
