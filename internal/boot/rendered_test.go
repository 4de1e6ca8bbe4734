package boot

import (
	"fmt"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestRenderingsAreBounded: what the boots of a NIC that are over were rendered from is dropped, and there are only so many NICs.
func TestRenderingsAreBounded(t *testing.T) {
	t.Parallel()
	var r renderings
	for i := range 100 {
		token := fmt.Sprint(i)
		r.keep(lab.MAC{2}, token, rendering{profile: &lab.Profile{}}, func(other string) bool { return other == "0" })
		for _, current := range []string{"0", token} {
			if _, ok := r.of(lab.MAC{2}, current, nil); !ok {
				t.Fatalf("boot %s is gone after %d", current, i)
			}
		}
	}
	if n := len(r.boots[lab.MAC{2}]); n != 2 {
		t.Errorf("%d boots are kept, want that which is under way and the last", n)
	}
	for i := range 2 * maxRendered {
		r.keep(lab.MAC{4, 0, 0, 0, byte(i >> 8), byte(i)}, "", rendering{}, nil)
	}
	if n := len(r.boots); n > maxRendered {
		t.Errorf("%d NICs are kept, want at most %d", n, maxRendered)
	}
}
