package dnsprobe

import "testing"

// FuzzAnswer: no datagram of a server makes the check panic, and what has another id is no answer.
func FuzzAnswer(f *testing.F) {
	query, id, _ := dnsQuery("a.test")
	query[2] |= 0x80
	f.Add(query, id)
	f.Add(query[:12], id)
	f.Add([]byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, id uint16) {
		answered, err := dnsAnswer(b, id, "a.test")
		if answered && (len(b) < 12 || uint16(b[0])<<8|uint16(b[1]) != id || b[2]&0x80 == 0) || !answered && err != nil {
			t.Errorf("%x is an answer to %d: %v, %v", b, id, answered, err)
		}
	})
}
