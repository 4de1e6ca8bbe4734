package lbproxy

import "time"

const (
	freeFrom  = 2000 // more sockets than the last time are open when memory is given back
	freeEvery = 20 * time.Second
)

// A memoryRelease gives memory back to the system after many connections were opened: what they used to connect.
// Without it a daemon without new connections keeps that for minutes.
type memoryRelease struct {
	open  int       // sockets at the last look
	freed int       // and when memory was given back, or fewer
	at    time.Time // when that was
}

// due reports whether memory is to be given back, with that many sockets open: as soon as their number grows no more.
func (m *memoryRelease) due(open int, now time.Time) bool {
	grows := open-m.open > open/16
	m.open, m.freed = open, min(m.freed, open)
	if grows || open-m.freed < freeFrom || now.Sub(m.at) < freeEvery {
		return false
	}
	m.freed, m.at = open, now
	return true
}
