package httpd

import (
	"bytes"
	"slices"

	"github.com/bootlab/bootlab/internal/api"
)

// A matcher finds what has every part of a query in one of its words. It keeps its buffer, since a book of leases is long, and
// belongs to one goroutine.
type matcher struct {
	parts [][]byte // in lower case, without white space
	buf   []byte
}

// words reports whether the words match.
func (m *matcher) words(words ...string) bool {
	m.buf = m.buf[:0]
	for _, w := range words {
		m.add(w)
	}
	return m.found()
}

// lease reports whether a lease matches.
func (m *matcher) lease(l *api.Lease) bool {
	if len(m.parts) == 0 {
		return true
	}
	m.buf = append(l.IP.AppendTo(m.buf[:0]), '\n')
	m.buf = append(l.MAC.AppendTo(m.buf), '\n')
	for _, w := range [...]string{l.Host, l.Name, l.Network, l.Pool, string(l.Status()), l.RelayPort} {
		m.add(w)
	}
	return m.found()
}

// add adds a word, which no part of the query exceeds: parts hold no white space.
func (m *matcher) add(word string) { m.buf = append(append(m.buf, word...), '\n') }

func (m *matcher) found() bool {
	for i, c := range m.buf {
		if 'A' <= c && c <= 'Z' {
			m.buf[i] = c + 'a' - 'A'
		}
	}
	return !slices.ContainsFunc(m.parts, func(part []byte) bool { return !bytes.Contains(m.buf, part) })
}
