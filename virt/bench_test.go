package virt_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/virt"
)

// thousand is a lab of 1,000 virtual machines on two hypervisors.
func thousand() *lab.Lab {
	l := oneHost()
	proto := l.Hosts[0]
	other := *l.Hypervisors[0]
	other.Name, other.URI = "kvm2", "qemu+ssh://kvm2/system"
	l.Hypervisors, l.Hosts = append(l.Hypervisors, &other), nil
	for i := range 1000 {
		h, vm := *proto, *proto.VM
		h.Name, h.MACs = fmt.Sprintf("host-%d", i), []lab.MAC{{0x52, 0x54, 0, 1, byte(i >> 8), byte(i)}}
		vm.Hypervisor = l.Hypervisors[i%2]
		h.VM = &vm
		l.Hosts = append(l.Hosts, &h)
	}
	return l
}

// BenchmarkPlan compares 1,000 machines with the lab file, without a hypervisor's own time.
func BenchmarkPlan(b *testing.B) {
	s := benchServer(b)
	for b.Loop() {
		if _, err := s.Plan(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList is what the dashboard and each list of hosts ask.
func BenchmarkList(b *testing.B) {
	s := benchServer(b)
	for b.Loop() {
		if n := len(s.List(b.Context())); n < 1000 {
			b.Fatal(n)
		}
	}
}

// static is a hypervisor whose machines are as in the lab file.
type static struct {
	*fake
	domains []virt.Domain
	xmls    map[string]string // by UUID
}

func (s *static) Domains(context.Context) ([]virt.Domain, error) { return s.domains, nil }

func (s *static) XML(_ context.Context, uuid string) (string, error) { return s.xmls[uuid], nil }

// statics are static hypervisors, by URI.
type statics map[string]*static

func (s statics) Open(uri string, _ func([]string)) virt.Hypervisor { return s[uri] }

func benchServer(b *testing.B) *virt.Server {
	b.Helper()
	l := thousand()
	table, err := virt.Compile(l)
	if err != nil {
		b.Fatal(err)
	}
	driver := statics{}
	for _, hv := range l.Hypervisors {
		driver[hv.URI] = &static{fake: newFake(), xmls: map[string]string{}}
	}
	for _, h := range l.Hosts {
		xml, err := table.XML(h.Name)
		if err != nil {
			b.Fatal(err)
		}
		var d libvirtxml.Domain
		if err := d.Unmarshal(xml); err != nil {
			b.Fatal(err)
		}
		s := driver[h.VM.Hypervisor.URI]
		s.xmls[d.UUID] = xml
		s.domains = append(s.domains, virt.Domain{Name: d.Name, UUID: d.UUID, State: virt.StateRunning, Metadata: d.Metadata.XML, MACs: []string{h.MACs[0].String()}})
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := virt.New(virt.Config{}, virt.Deps{Table: func() *virt.Table { return table }, Events: &recorder{}, Log: log, Registerer: prometheus.NewRegistry(), Now: time.Now, Driver: driver})
	if err != nil {
		b.Fatal(err)
	}
	return s
}
