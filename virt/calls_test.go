//go:build cgo && libvirt_dlopen

package virt_test

import (
	"sync"
	"testing"

	"github.com/bootlab/bootlab/virt"
)

// TestCallsAtTheSameTime: calls of many goroutines are made one after the other, and each gets its own answer.
func TestCallsAtTheSameTime(t *testing.T) {
	t.Parallel()
	hv := newDriver().Open("test:///default", func([]string) {})
	t.Cleanup(hv.Close)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				node, err := hv.Node(t.Context())
				if err != nil || node.CPUs == 0 {
					t.Errorf("node %+v, %v", node, err)
					return
				}
				domains, err := hv.Find(t.Context(), "00000000-0000-4000-8000-000000000001", "test")
				if err != nil || len(domains) != 1 || domains[0].State != virt.StateRunning {
					t.Errorf("domains %+v, %v", domains, err)
					return
				}
			}
		})
	}
	callers.Wait()
}
