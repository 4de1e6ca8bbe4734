package dhcpd

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// BenchmarkRefused: a flood of made-up machines that get no address, each with a MAC of its own, with the bus of the daemon behind it.
func BenchmarkRefused(b *testing.B) {
	for _, what := range []string{"no pool", "full pool"} {
		b.Run(what, func(b *testing.B) {
			bench := newBench(b)
			var n atomic.Int64
			bus := event.NewBus(event.BusConfig{Now: bench.clock.Now, Recorders: []event.Recorder{recorderFunc(func(event.Event) { n.Add(1) })}})
			bench.Server.deps.Events = bus
			if what == "no pool" {
				bench.lab.Networks[2].Pools = nil
				bench.table = Compile(bench.lab)
			} else {
				var t testing.T
				pool := bench.smallPool(&t, "10.77.0.250")
				for i := range pool.addrs.Usable() {
					bench.take(&t, madeUp(i))
				}
			}
			x := &exchange{iface: "lab0", port: 67, from: netip.MustParseAddrPort(client0), out: nowhere{}}
			data := message(b, dhcpv4.MessageTypeDiscover, lab.MAC{2, 9}, udhcpc)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				data[28], data[29], data[30], data[31], data[32], data[33] = 2, 9, byte(i>>24), byte(i>>16), byte(i>>8), byte(i)
				bench.handle(x, data)
			}
			b.ReportMetric(float64(n.Load()), "events")
		})
	}
}
