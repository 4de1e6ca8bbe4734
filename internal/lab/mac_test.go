package lab_test

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

func TestParseMAC(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"52:54:00:2c:01:10", "52:54:00:2c:01:10"},
		{"52-54-00-2C-01-10", "52:54:00:2c:01:10"},
		{"52:54-00:2c:01:10", ""},
		{"52:54:00:2c:01", ""},
		{"52:54:00:2c:01:1g", ""},
		{"525400:2c0110:::::", ""},
		{"", ""},
	}
	for _, tt := range tests {
		m, err := lab.ParseMAC(tt.in)
		if (err == nil) != (tt.want != "") || err == nil && m.String() != tt.want {
			t.Errorf("ParseMAC(%q) = %s, %v, want %q", tt.in, m, err, tt.want)
		}
	}
}

// TestMACMeant: an error says which address was meant.
func TestMACMeant(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"5254.002C.0110":     "did you mean 52:54:00:2c:01:10?",
		"5254-002c-0110":     "did you mean 52:54:00:2c:01:10?",
		"5254002c0110":       "did you mean 52:54:00:2c:01:10?",
		"52:54-00:2c:01:10":  "did you mean 52:54:00:2c:01:10?",
		"52:54:00:2c:01":     "want six bytes",
		"52:54:00:2c:01:10:": "did you mean 52:54:00:2c:01:10?",
		"5254.002c.011g":     "want six bytes",
		"":                   "want six bytes",
	} {
		if _, err := lab.ParseMAC(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseMAC(%q): %v, want %q", in, err, want)
		}
	}
}

func TestMACPattern(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, text string
		bits          int
		in, out       string
	}{
		{"52:54:00:*:*:*", "52:54:00:*:*:*", 24, "52:54:00:01:02:03", "52:54:01:01:02:03"},
		{"*-*-*-*-*-07", "*:*:*:*:*:07", 8, "02:00:00:00:00:07", "02:00:00:00:00:08"},
		{"52:54:00:00:00:00/20", "52:54:00:00:00:00/20", 20, "52:54:0f:00:00:00", "52:54:10:00:00:00"},
		{"52:54:00:00:00:00/24", "52:54:00:*:*:*", 24, "52:54:00:ff:ff:ff", "52:55:00:00:00:00"},
	}
	for _, tt := range tests {
		p, err := lab.ParseMACPattern(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		in, err1 := lab.ParseMAC(tt.in)
		out, err2 := lab.ParseMAC(tt.out)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if p.String() != tt.text || p.Bits() != tt.bits || !p.Match(in) || p.Match(out) {
			t.Errorf("%s: String %s, Bits %d, Match(%s) %v, Match(%s) %v", tt.pattern, p, p.Bits(), in, p.Match(in), out, p.Match(out))
		}
	}
	for _, bad := range []string{"", "52:54", "52:54:00:00:00:00/49", "zz:*:*:*:*:*", "52:54:00:*:*:*/24"} {
		if p, err := lab.ParseMACPattern(bad); err == nil {
			t.Errorf("ParseMACPattern(%q) = %s, want an error", bad, p)
		}
	}
}

func TestPoolMachines(t *testing.T) {
	t.Parallel()
	l := parse(t, `
networks:
  lan:
    subnet: 10.1.2.0/24
    address: 10.1.2.1
    lease: 2h
    pools:
      any: {range: 10.1.2.100-10.1.2.109}
      kvm: {range: 10.1.2.110-10.1.2.119, mac: ["52:54:00:*:*:*"], profile: discover, lease: 1h}
      one: {range: 10.1.2.120-10.1.2.129, mac: ["52:54:00:00:00:*"], profile: discover}
profiles: {discover: {ipxe: discover.ipxe}}
hosts: {a: {mac: 52:54:00:00:01:01, ip: 10.1.2.5}}
`)
	tests := []struct {
		mac, addr, pool, machine string
	}{
		{"52:54:00:00:01:01", "10.1.2.5", "kvm", "a"},
		{"52:54:00:00:01:02", "10.1.2.111", "kvm", "52-54-00-00-01-02"},
		{"52:54:00:00:00:02", "10.1.2.121", "one", "52-54-00-00-00-02"},
		{"52:54:00:00:01:02", "10.1.2.121", "kvm", ""},
		{"02:00:00:00:00:01", "10.1.2.101", "any", ""},
		{"52:54:00:00:01:02", "10.9.9.9", "kvm", ""},
	}
	for _, tt := range tests {
		m, err := lab.ParseMAC(tt.mac)
		if err != nil {
			t.Fatal(err)
		}
		if p := l.Networks[0].PoolFor(&lab.Client{MAC: m}); p == nil || p.Name != tt.pool {
			t.Errorf("PoolOf(%s) = %v, want %s", m, p, tt.pool)
		}
		name := ""
		if h := l.MachineOf(m, addr(t, tt.addr)); h != nil {
			name = h.Name
		}
		if name != tt.machine {
			t.Errorf("MachineOf(%s, %s) = %q, want %q", m, tt.addr, name, tt.machine)
		}
	}
	if one := l.Networks[0].Pools[2]; one.Lease.String() != "2h0m0s" || one.Profile == nil {
		t.Errorf("pool one: lease %s, profile %v", one.Lease, one.Profile)
	}
}
