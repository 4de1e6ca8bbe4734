package bolt

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
)

// A merge walks the newest writes of some layers by key. Its work comes in small pieces, each chunk sorted by itself, with a
// chance for other goroutines between them: on a single core a packet must not wait until 50,000 keys are sorted.
type merge struct{ heap []run }

// A run is one chunk in order: by key, newest write first.
type run struct {
	chunk *chunk
	order []uint16 // what is still to come; never empty
	age   int      // greater is newer
}

func (r *run) first() *entry { return &r.chunk[r.order[0]] }

func (r *run) before(o *run) bool {
	if c := strings.Compare(r.first().key, o.first().key); c != 0 {
		return c < 0
	}
	return r.age > o.age
}

// newMerge merges snapshots, the older first, where keys begin with prefix.
func newMerge(prefix string, snaps ...snapshot) *merge {
	m := &merge{}
	for _, s := range snaps {
		for at := 0; at < s.count; at += chunkSize {
			c := s.chunks[at/chunkSize]
			if order := sortChunk(c, min(chunkSize, s.count-at), prefix); len(order) > 0 {
				m.heap = append(m.heap, run{c, order, len(m.heap)})
			}
			runtime.Gosched()
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m
}

func sortChunk(c *chunk, n int, prefix string) []uint16 {
	var order []uint16
	for i := range n {
		if strings.HasPrefix(c[i].key, prefix) {
			order = append(order, uint16(i))
		}
	}
	slices.SortFunc(order, func(a, b uint16) int {
		return cmp.Or(strings.Compare(c[a].key, c[b].key), cmp.Compare(b, a))
	})
	return order
}

// next returns the newest write of the next key, or nil.
func (m *merge) next() *entry {
	if len(m.heap) == 0 {
		return nil
	}
	e := m.heap[0].first()
	for len(m.heap) > 0 && m.heap[0].first().key == e.key {
		m.advance()
	}
	return e
}

// advance drops the first entry of the first run.
func (m *merge) advance() {
	first, last := &m.heap[0], len(m.heap)-1
	if first.order = first.order[1:]; len(first.order) == 0 {
		*first = m.heap[last]
		m.heap = m.heap[:last]
	}
	m.sink(0)
}

func (m *merge) sink(i int) {
	h := m.heap
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if right := least + 1; right < len(h) && h[right].before(&h[least]) {
			least = right
		}
		if !h[least].before(&h[i]) {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
