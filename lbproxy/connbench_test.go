package lbproxy

import (
	"io"
	"net"
	"testing"
)

// BenchmarkNewConnections is one connection in mode tcp after the other, with four bytes each way. Most of its allocations are of the client
// and the backend.
func BenchmarkNewConnections(b *testing.B) {
	back := serveTCP(b, func(c net.Conn) {
		ping := make([]byte, 4)
		_, _ = io.ReadFull(c, ping)
		_, _ = c.Write(ping)
	})
	to := balancer("b", addr(b), back)
	newTestServer(b, Config{}, to)
	b.ReportAllocs()
	for b.Loop() {
		c, err := net.Dial("tcp", to.Listen.String())
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.WriteString(c, "ping")
		if n, err := c.Read(make([]byte, 5)); n != 4 {
			b.Fatal(n, err)
		}
		_ = c.Close()
	}
}
