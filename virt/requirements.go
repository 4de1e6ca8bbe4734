package virt

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// surveyWait is how long Survey waits for a hypervisor.
const surveyWait = 20 * time.Second

// Survey asks all hypervisors of a table, at the same time, for what the machines that may be there need: bridges, networks, pools,
// memory, machine types, firmware, CPU models, TPM and video. It changes nothing. missing has what is not there, and hypervisors that
// do not answer; unknown what a hypervisor could not tell.
func Survey(ctx context.Context, driver Driver, t *Table) (missing, unknown lab.Problems) {
	surveys := make([]*survey, len(t.hypervisors))
	var asked sync.WaitGroup
	for i, hv := range t.hypervisors {
		s := &survey{table: t, hv: hv, machines: t.mayBeOn(hv)}
		surveys[i] = s
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, surveyWait)
			defer cancel()
			h := driver.Open(hv.URI, func([]string) {})
			defer h.Close()
			if err := s.ask(ctx, h); err != nil {
				s.missing = nil
				s.lacks(hv.URIPos, ".uri", "does not answer: %s", addHint(unanswered(hv.URI, err), lab.Attachment{}, hv))
			}
		})
	}
	asked.Wait()
	for _, s := range surveys {
		missing, unknown = append(missing, s.missing...), append(unknown, s.unknown...)
	}
	return missing, unknown
}

// A survey is what one hypervisor has, and what it lacks.
type survey struct {
	table            *Table
	hv               *lab.Hypervisor
	machines         []*machine // that may be there
	missing, unknown lab.Problems
}

// lacks notes what the hypervisor does not have, by a key of it, whose value is at pos.
func (s *survey) lacks(pos lab.Pos, key, format string, args ...any) {
	s.missing.Addf(cmp.Or(pos, s.hv.Pos), "hypervisors."+s.hv.Name+key, format, args...)
}

// mayBeOn returns the machines that may be on a hypervisor.
func (t *Table) mayBeOn(hv *lab.Hypervisor) (all []*machine) {
	for _, m := range t.machines {
		for _, there := range m.everywhere() {
			if there.vm.Hypervisor == hv {
				all = append(all, there)
			}
		}
	}
	return all
}

// ask asks the hypervisor. The error is that it does not answer.
func (s *survey) ask(ctx context.Context, h Hypervisor) error {
	node, err := h.Node(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.machines {
		if err := m.fitsIn(node.Memory); err != nil {
			s.machineLacks(m, "memory", "%s", err)
		}
	}
	if err := s.askPools(ctx, h); err != nil {
		return err
	}
	if err := s.askNetworks(ctx, h); err != nil {
		return err
	}
	if err := s.askInterfaces(ctx, h); err != nil {
		return err
	}
	return s.askMachines(ctx, h)
}

// machineLacks notes what the hypervisor does not have, by a key of a machine.
func (s *survey) machineLacks(m *machine, key, format string, args ...any) {
	s.missing.Addf(m.host.Pos, "hosts."+m.host.Name+".vm."+key, format, args...)
}

func (s *survey) askPools(ctx context.Context, h Hypervisor) error {
	pools, err := h.Pools(ctx)
	if err != nil {
		return err
	}
	var names []string
	active := map[string]bool{}
	for _, p := range pools {
		active[p.Name] = p.Active
		names = append(names, p.Name)
	}
	slices.Sort(names)
	for _, m := range s.machines {
		ids := m.allVolumeIDs()
		slices.SortFunc(ids, func(a, b VolumeID) int { return cmp.Compare(a.Pool, b.Pool) })
		for _, id := range slices.CompactFunc(ids, func(a, b VolumeID) bool { return a.Pool == b.Pool }) {
			is, exists := active[id.Pool]
			switch {
			case !exists:
				s.machineLacks(m, "disks", "hypervisor %s has no storage pool %s: want one of %s, or create it there (virsh pool-create-as)", s.hv.Name, id.Pool, cmp.Or(strings.Join(names, ", "), "none"))
			case !is:
				s.machineLacks(m, "disks", "storage pool %s of hypervisor %s is not active: start it (virsh pool-start %[1]s)", id.Pool, s.hv.Name)
			}
		}
	}
	return nil
}

func (s *survey) askNetworks(ctx context.Context, h Hypervisor) error {
	networks, err := networksOf(ctx, h)
	if err != nil {
		return err
	}
	for _, a := range s.hv.Bridges {
		have := networks[a.LibvirtNetwork]
		key := ".bridges." + a.Network.Name
		switch {
		case a.LibvirtNetwork == "":
		case a.Create != nil:
			if _, err := (&libvirtNetwork{s.table.lab, s.hv, a}).find(networks); err != nil {
				s.lacks(a.Pos, key, "%s", err)
			}
		case have == nil:
			s.lacks(a.Pos, key, "there is no libvirt network %s: define it there, or let bootlab create it (create: nat, isolated or bridge)", a.LibvirtNetwork)
		case !have.isActive():
			s.lacks(a.Pos, key, "libvirt network %s is not active: start it (virsh net-start %[1]s)", a.LibvirtNetwork)
		}
	}
	return nil
}

// askInterfaces looks for the bridges and interfaces. Not every hypervisor tells.
func (s *survey) askInterfaces(ctx context.Context, h Hypervisor) error {
	wanted, places := map[string]string{}, map[string]lab.Pos{} // by lab network
	for _, a := range s.hv.Bridges {
		name := cmp.Or(a.Bridge, a.OVS, a.Macvtap)
		if a.Create != nil && a.Create.Forward == lab.ForwardBridge {
			name = a.Create.Bridge
		}
		if name != "" {
			wanted[a.Network.Name], places[a.Network.Name] = name, a.Pos
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	names, err := h.Interfaces(ctx)
	if IsUnreachable(err) {
		return err
	}
	if err != nil {
		s.unknown.Addf(s.hv.Pos, "hypervisors."+s.hv.Name+".bridges", "bridges were not checked, libvirt does not list interfaces there: %s", err)
		return nil
	}
	slices.Sort(names)
	for _, network := range slices.Sorted(maps.Keys(wanted)) {
		if name := wanted[network]; !slices.Contains(names, name) {
			s.lacks(places[network], ".bridges."+network, "there is no interface %s: want one of %s, or create it there", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// askMachines asks for what an emulator is able to, once for each kind of machine.
func (s *survey) askMachines(ctx context.Context, h Hypervisor) error {
	type kind struct{ arch, machine string }
	asked := map[kind]*libvirtxml.DomainCaps{}
	why := map[kind]error{}
	for _, m := range s.machines {
		os := m.os()
		k := kind{os.Type.Arch, os.Type.Machine}
		if asked[k] == nil && why[k] == nil {
			text, err := h.Capabilities(ctx, k.arch, k.machine, m.domainType())
			if IsUnreachable(err) {
				return err
			}
			caps := &libvirtxml.DomainCaps{}
			if err == nil && text == "" {
				s.unknown.Addf(m.host.Pos, "hosts."+m.host.Name+".vm", "hypervisor %s does not tell which machines it runs", s.hv.Name)
				return nil
			}
			if err == nil {
				err = caps.Unmarshal(text)
			}
			asked[k], why[k] = caps, err
		}
		if err := why[k]; err != nil {
			s.machineLacks(m, "machine", "hypervisor %s runs no %s machine %s with domain_type %s: %s", s.hv.Name, k.arch, k.machine, m.domainType(), addHint(err, lab.Attachment{}, s.hv))
			continue
		}
		s.compare(m, asked[k])
	}
	return nil
}

// compare notes what a machine needs and the emulator does not have.
func (s *survey) compare(m *machine, caps *libvirtxml.DomainCaps) {
	if m.vm.Firmware == lab.FirmwareUEFI || m.vm.Firmware == lab.FirmwareUEFISecure {
		if caps.OS == nil || !offers(caps.OS.Enums, "firmware", "efi") {
			s.machineLacks(m, "firmware", "hypervisor %s has no UEFI firmware for %s: install it there (Debian: ovmf, qemu-efi-aarch64)", s.hv.Name, caps.Arch)
		} else if m.vm.Firmware == lab.FirmwareUEFISecure && (caps.OS.Loader == nil || !offers(caps.OS.Loader.Enums, "secure", "yes")) {
			s.machineLacks(m, "firmware", "hypervisor %s has no UEFI firmware with Secure Boot: install it there (Debian: ovmf)", s.hv.Name)
		}
	}
	if cpu := m.cpu(); !hasCPU(caps, cpu) {
		s.machineLacks(m, "cpu", "hypervisor %s does not have CPU %s: virsh domcapabilities lists those that it has", s.hv.Name, cpuText(cpu))
	}
	if caps.Devices == nil {
		return
	}
	if tpm := caps.Devices.TPM; m.vm.TPM && (tpm == nil || tpm.Supported != "yes" || !offers(tpm.Enums, "backendModel", "emulator")) {
		s.machineLacks(m, "tpm", "hypervisor %s has no emulated TPM: install swtpm there", s.hv.Name)
	}
	d := &libvirtxml.DomainDeviceList{}
	m.addConsoles(d)
	if video := caps.Devices.Video; video != nil && !offers(video.Enums, "modelType", d.Videos[0].Model.Type) {
		s.machineLacks(m, "video", "hypervisor %s has no video model %s", s.hv.Name, d.Videos[0].Model.Type)
	}
}

// offers reports whether one of the values of an enumeration is the one that is wanted.
func offers(enums []libvirtxml.DomainCapsEnum, name, value string) bool {
	return slices.ContainsFunc(enums, func(e libvirtxml.DomainCapsEnum) bool { return e.Name == name && slices.Contains(e.Values, value) })
}

// hasCPU reports whether the emulator has a CPU. For emulation libvirt does not always know whether a model is usable.
func hasCPU(caps *libvirtxml.DomainCaps, cpu *libvirtxml.DomainCPU) bool {
	if caps.CPU == nil {
		return true // it does not tell
	}
	for _, mode := range caps.CPU.Modes {
		if mode.Name != cpu.Mode || mode.Supported != "yes" {
			continue
		}
		return cpu.Model == nil || slices.ContainsFunc(mode.Models, func(c libvirtxml.DomainCapsCPUModel) bool {
			return c.Name == cpu.Model.Value && c.Usable != "no"
		})
	}
	return false
}
