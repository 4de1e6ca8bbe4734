package virt_test

import (
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

func TestMain(m *testing.M) {
	virt.HypervisorProcess()
	netns.Main(m)
}

const gib = lab.Size(1 << 30)

// oneHost returns a lab with one virtual machine on one hypervisor, after the given changes.
func oneHost(change ...func(*lab.Host)) *lab.Lab {
	n := &lab.Network{Name: "baremetal", Subnet: netip.MustParsePrefix("10.77.0.0/24")}
	hv := &lab.Hypervisor{Name: "kvm1", URI: "test:///default", Pool: "default", DomainType: "kvm",
		Bridges: []lab.Attachment{{Network: n, Bridge: "br0"}}}
	h := &lab.Host{
		Pos: lab.Pos{File: "lab.yaml", Line: 7, Column: 3}, Name: "master-0", FQDN: "master-0.our.pretty.lab", Serial: "master-0",
		MACs: []lab.MAC{{0x52, 0x54, 0, 0, 2, 1}}, IP: netip.MustParseAddr("10.77.0.21"), Network: n,
		VM: &lab.VM{Hypervisor: hv, CPUs: 2, Memory: 4 * gib, Disks: []lab.Disk{{Size: 20 * gib, Bus: "virtio"}},
			Firmware: lab.FirmwareBIOS, Machine: "q35"},
	}
	for _, c := range change {
		c(h)
	}
	return &lab.Lab{Name: "telco", Networks: []*lab.Network{n}, Hosts: []*lab.Host{h}, Hypervisors: []*lab.Hypervisor{hv}}
}

// hosts returns the labs whose XML is in golden files.
func hosts() map[string]*lab.Lab {
	return map[string]*lab.Lab{
		"bios": oneHost(),
		"uefi": oneHost(func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFI }),
		"uefi-secure": oneHost(func(h *lab.Host) {
			h.VM.Firmware = lab.FirmwareUEFISecure
			h.VM.Disks[0].Bus = "sata"
		}),
		"several": oneHost(func(h *lab.Host) {
			h.MACs = append(h.MACs, lab.MAC{0x52, 0x54, 0, 0, 2, 2})
			h.Network.MTU = 9000
			h.VM.CPU = "host-model"
			h.VM.Disks = []lab.Disk{
				{Size: 42 * gib, Bus: "scsi", Cache: "unsafe"}, {Size: 150 * gib, Bus: "scsi"}, {Size: gib, Bus: "sata"}, {Size: gib},
			}
		}),
		"emulated": oneHost(func(h *lab.Host) {
			h.VM.Hypervisor.DomainType = "qemu"
			h.VM.CPU = "host-passthrough"
			h.VM.Hypervisor.Bridges[0] = lab.Attachment{Network: h.Network, LibvirtNetwork: "lab-net"}
			h.VM.Disks = nil
		}),
		"nics": oneHost(func(h *lab.Host) {
			second := &lab.Network{Name: "provisioning"}
			h.VM.Hypervisor.Bridges = append(h.VM.Hypervisor.Bridges, lab.Attachment{Network: second, Bridge: "br1"})
			h.NICs = []lab.NIC{{Network: second, MAC: lab.MAC{0x52, 0x54, 0, 0, 2, 9}, Model: "e1000"}}
		}),
		"hardware": oneHost(func(h *lab.Host) {
			h.VM.Firmware, h.VM.TPM, h.VM.Video, h.VM.HugePages = lab.FirmwareUEFI, true, "none", 2<<20
			for i, a := range []lab.Attachment{{OVS: "br-int", VLAN: 7}, {Macvtap: "eno1"}, {LibvirtNetwork: "lan", PortGroup: "blue", VLAN: 8}} {
				a.Network = &lab.Network{Name: a.OVS + a.Macvtap + a.LibvirtNetwork}
				h.VM.Hypervisor.Bridges = append(h.VM.Hypervisor.Bridges, a)
				h.NICs = append(h.NICs, lab.NIC{Network: a.Network, MAC: lab.MAC{0x52, 0x54, 0, 0, 3, byte(i)}})
			}
		}),
		"aarch64": oneHost(func(h *lab.Host) {
			h.VM.Arch, h.VM.Firmware, h.VM.Machine, h.VM.TPM = lab.ArchARM64, lab.FirmwareUEFI, "virt", true
			h.VM.Hypervisor.DomainType = "qemu"
		}),
		"disks": oneHost(func(h *lab.Host) {
			h.VM.Disks = []lab.Disk{{Size: gib}, {Size: gib, Pool: "fast", Format: lab.DiskRaw, Bus: "scsi"}, {Volume: "data", Pool: "slow"}}
		}),
		"image":     oneHost(fromImage),
		"seed":      oneHost(fromImage, func(h *lab.Host) { h.Profile.OS = lab.OSCloudInit }),
		"cpu-model": oneHost(func(h *lab.Host) { h.VM.CPU, h.VM.Machine, h.VM.Disks[0].Bus = "Westmere", "pc", "ide" }),
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
