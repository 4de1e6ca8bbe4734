package lab

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s     string
		names []string
		want  string
	}{
		{"subent", []string{"subnet", "router"}, "subnet"},
		{"iface", []string{"address", "interface", "range"}, "interface"},
		{"circuit", []string{"circuit_id", "remote_id"}, "circuit_id"},
		{"DonURL", []string{"ConfigURL", "DoneURL"}, "DoneURL"},
		{"worker", []string{"worker-100", "worker-101"}, ""}, // abbreviates both
		{"when", []string{"force", "value"}, ""},
		{"x", []string{"y"}, ""},
		{"BAR", []string{"A", "MX", "TXT"}, ""},
		{"", []string{"y"}, ""},
	} {
		if got := Nearest(tt.s, tt.names); got != tt.want {
			t.Errorf("Nearest(%q, %q) = %q, want %q", tt.s, tt.names, got, tt.want)
		}
	}
}
