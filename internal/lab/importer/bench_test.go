package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab/importer"
)

// BenchmarkImport imports 60,000 hosts of dnsmasq, and 100,000 servers of HAProxy in one backend and in backends of ten.
func BenchmarkImport(b *testing.B) {
	var dnsmasq, one, ten strings.Builder
	dnsmasq.WriteString("domain=lab.example\ndhcp-range=10.0.0.0,static,255.255.0.0\n")
	for i := range 60_000 {
		fmt.Fprintf(&dnsmasq, "dhcp-host=52:54:00:00:%02x:%02x,10.0.%[1]d.%[2]d,h%[3]d\n", i>>8, i&0xff, i)
	}
	one.WriteString("defaults\n mode http\nlisten l\n bind :80\n")
	ten.WriteString("defaults\n mode http\n")
	for i := range 100_000 {
		line := fmt.Sprintf(" server s%d 10.%d.%d.%d:80 check\n", i, i>>16, i>>8&0xff, i&0xff)
		one.WriteString(line)
		if i%10 == 0 {
			fmt.Fprintf(&ten, "listen l%d\n bind 10.%d.%d.%d:8080\n", i, i>>16, i>>8&0xff, i&0xff)
		}
		ten.WriteString(line)
	}
	for _, tt := range []struct {
		name   string
		format importer.Format
		text   string
	}{{"dnsmasq", importer.Dnsmasq, dnsmasq.String()}, {"haproxy", importer.HAProxy, one.String()}, {"haproxy-many", importer.HAProxy, ten.String()}} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				r, err := importer.Text(tt.format, "x", []byte(tt.text), importer.Options{Check: check})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(r.Notes)), "notes")
			}
		})
	}
}
