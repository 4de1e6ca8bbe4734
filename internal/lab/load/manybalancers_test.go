package load_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/load"
)

// TestManyBalancers: balancers that share an address are compared with each other, which must cost no memory: a HAProxy with 20,000 rules
// becomes as many.
func TestManyBalancers(t *testing.T) {
	allocations := func(n int) float64 {
		var b strings.Builder
		b.WriteString(head + "\nnetworks: {lan: {subnet: 10.1.0.0/16, dhcp: off, address: 10.1.0.1}}\nbalancers:\n")
		for i := range n {
			fmt.Fprintf(&b, "  b%d: {listen: '10.1.0.1:8443', mode: http, match: {host: [h%d.example]}, backends: ['10.1.1.1:80']}\n", i, i)
		}
		text := []byte(b.String())
		return testing.AllocsPerRun(1, func() {
			if _, err := load.Parse("lab.yaml", text, load.Options{FileExists: noFiles}); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocations(100), allocations(400)
	if many > 6*few {
		t.Errorf("400 balancers allocate %.0f times, 100 %.0f times: that is not in proportion", many, few)
	}
}
