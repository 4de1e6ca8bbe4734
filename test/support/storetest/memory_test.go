package storetest_test

import (
	"errors"
	"testing"

	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/test/support/storetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) storetest.Open {
		m := storetest.Memory()
		return func() (store.Store, error) {
			m = m.Reopen()
			return m, nil
		}
	})
}

func TestFailCommits(t *testing.T) {
	t.Parallel()
	m, full := storetest.Memory(), errors.New("disk full")
	m.FailCommits(full)
	if err := m.Commit(t.Context(), store.Put("a", nil)); !errors.Is(err, full) {
		t.Errorf("commit = %v, want %v", err, full)
	}
	m.FailCommits(nil)
	if err := m.Commit(t.Context(), store.Put("a", nil)); err != nil {
		t.Errorf("commit = %v", err)
	}
}
