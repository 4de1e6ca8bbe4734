package dnsd

import (
	"slices"
	"sync"
)

// seats are the connections that are open at one time. When all are taken, a newcomer gets the one whose client has asked
// nothing for longest, as RFC 7766 section 6.2.3 has it: a client that only holds connections keeps nobody else out.
type seats struct {
	most int

	mu   sync.Mutex
	open []*tcpConn // in the order of their last questions, the longest ago first
}

// take gives c a seat, and returns the connection that it is taken from, which the caller closes; nil: one was free.
func (s *seats) take(c *tcpConn) (from *tcpConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= s.most {
		from = s.open[0]
		s.open = slices.Delete(s.open, 0, 1)
	}
	s.open = append(s.open, c)
	return from
}

// asked notes that a question came on c.
func (s *seats) asked(c *tcpConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, c); i >= 0 {
		s.open = append(slices.Delete(s.open, i, i+1), c)
	}
}

// leave gives c's seat back, if it still has one.
func (s *seats) leave(c *tcpConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, c); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
}
