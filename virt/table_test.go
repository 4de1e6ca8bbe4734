package virt_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/golden"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestXMLGolden(t *testing.T) {
	t.Parallel()
	for name, l := range hosts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, err := virt.Compile(l)
			check(t, err)
			domain, err := table.XML("master-0")
			check(t, err)
			volumes, err := table.VolumeXML("master-0")
			check(t, err)
			golden.Check(t, update, "testdata/"+name+".xml", domain+"\n")
			golden.Check(t, update, "testdata/"+name+".volumes.xml", strings.Join(volumes, "\n")+"\n")
		})
	}
}

func TestXMLMatchesSchema(t *testing.T) {
	t.Parallel()
	netns.Need(t, "virt-xml-validate", "xmllint")
	domains, err := filepath.Glob("testdata/*.xml")
	check(t, err)
	if len(domains) < 2*len(hosts()) {
		t.Fatalf("%d golden files, want %d", len(domains), 2*len(hosts()))
	}
	for _, file := range domains {
		if strings.HasSuffix(file, ".volumes.xml") {
			validateVolumes(t, file)
			continue
		}
		validate(t, file, "domain")
	}
}

// validateVolumes validates each document of a file.
func validateVolumes(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	check(t, err)
	for _, doc := range strings.SplitAfter(string(b), "</volume>\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		one := filepath.Join(t.TempDir(), "volume.xml")
		check(t, os.WriteFile(one, []byte(doc), 0o600))
		validate(t, one, "storagevol")
	}
}

func validate(t *testing.T, file, schema string) {
	t.Helper()
	if out, err := exec.Command("virt-xml-validate", file, schema).CombinedOutput(); err != nil {
		t.Errorf("%s is not a valid %s: %v\n%s", file, schema, err, out)
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*lab.Host)
		want   string
	}{
		{"no MAC", func(h *lab.Host) { h.MACs = nil }, "hosts.master-0.mac: a virtual machine needs a MAC address: write one such as 52:54:00:00:00:01"},
		{"no CPU", func(h *lab.Host) { h.VM.CPUs = 0 }, "hosts.master-0.vm.cpus: 0 is not a number of CPUs: want 1 or more"},
		{"no memory", func(h *lab.Host) { h.VM.Memory = 512 }, "hosts.master-0.vm.memory: 512 bytes are not enough for any machine: want a size such as 4GiB"},
		{"bus", func(h *lab.Host) { h.VM.Disks[0].Bus = "nvme" }, `hosts.master-0.vm.disks: unknown bus "nvme": want virtio, scsi, sata or usb`},
		{"ide", func(h *lab.Host) { h.VM.Disks[0].Bus = "ide" }, "hosts.master-0.vm.disks: machine q35 has no ide bus: want sata, or machine: pc"},
		{"empty disk", func(h *lab.Host) { h.VM.Disks[0].Size = 0 }, "hosts.master-0.vm.disks: a disk needs a size such as 20GiB"},
		{"cache", func(h *lab.Host) { h.VM.Disks[0].Cache = "fast" }, `hosts.master-0.vm.disks: unknown cache mode "fast": want none, writethrough, writeback, directsync or unsafe`},
		{"disks", func(h *lab.Host) {
			for len(h.VM.Disks) < 27 {
				h.VM.Disks = append(h.VM.Disks, h.VM.Disks[0])
			}
		}, "hosts.master-0.vm.disks: too many disks: want at most 26 of a kind"},
		{"format", func(h *lab.Host) { h.VM.Disks[0].Format = "vmdk" }, `hosts.master-0.vm.disks: unknown format "vmdk": want qcow2 or raw`},
		{"raw overlay", func(h *lab.Host) { fromImage(h); h.VM.Disks = []lab.Disk{{Format: lab.DiskRaw}} }, `hosts.master-0.vm.disks: the first disk is an overlay on the image of profile "base", which only qcow2 can be: want format: qcow2`},
		{"volume for an image", func(h *lab.Host) { fromImage(h); h.VM.Disks = []lab.Disk{{Volume: "data"}} }, `hosts.master-0.vm.disks: the first disk is made from the image of profile "base", so it cannot be volume data: want a size, or a profile without image`},
		{"second disk of an image without size", func(h *lab.Host) { fromImage(h); h.VM.Disks = []lab.Disk{{}, {}} }, "hosts.master-0.vm.disks: a disk needs a size such as 20GiB"},
		{"volume of two disks", func(h *lab.Host) { h.VM.Disks = []lab.Disk{{Size: gib}, {Volume: "master-0-vda.qcow2"}} }, "hosts.master-0.vm.disks: volume master-0-vda.qcow2 in pool default is a disk of host master-0 (lab.yaml:7:3) too: a volume is of one machine"},
		{"firmware", func(h *lab.Host) { h.VM.Firmware = "efi" }, `hosts.master-0.vm.firmware: unknown firmware "efi": want bios, uefi or uefi-secure`},
		{"secure pc", func(h *lab.Host) { h.VM.Firmware, h.VM.Machine = lab.FirmwareUEFISecure, "pc" }, `hosts.master-0.vm.firmware: secure boot needs machine q35, not "pc"`},
		{"network", func(h *lab.Host) { h.Network = nil }, "hosts.master-0.network: a virtual machine needs a network: give the host an ip, or a network"},
		{"bridge", func(h *lab.Host) { h.VM.Hypervisor.Bridges = nil }, `hosts.master-0.vm.hypervisor: hypervisor "kvm1" has no bridge for network "baremetal": add "baremetal: BRIDGE" to hypervisors.kvm1.bridges`},
		{"config beside an image", func(h *lab.Host) { fromImage(h); h.Profile.OS = lab.OSDebian }, `hosts.master-0.profile: profile "base" makes the disk from an image and has a config document, which only Ignition (os: coreos, flatcar) and cloud-init (os: cloud-init) find without a network boot: set os, take config out of the profile, or install over the network (kernel)`},
		{"hypervisor", func(h *lab.Host) { h.VM.Hypervisor = nil }, "hosts.master-0.vm.hypervisor: no hypervisor: want the name of one under hypervisors"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := virt.Compile(oneHost(tt.change))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff("lab.yaml:7:3: "+tt.want, err.Error()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestDigest: each setting of a machine is in the digest of its domain, by which bootlab finds that a lab file has changed. An equal lab
// file has an equal digest.
func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(change ...func(*lab.Host)) string {
		t.Helper()
		table, err := virt.Compile(oneHost(change...))
		check(t, err)
		xml, err := table.XML("master-0")
		check(t, err)
		_, rest, _ := strings.Cut(xml, `spec="`)
		spec, _, _ := strings.Cut(rest, `"`)
		return spec
	}
	seen := map[string]string{digest(): "nothing"}
	if again := digest(); again == "" || seen[again] == "" {
		t.Errorf("digests of the same machine: %v, %q", seen, again)
	}
	for name, change := range map[string]func(*lab.Host){
		"tpm":            func(h *lab.Host) { h.VM.TPM = true },
		"hugepages 2M":   func(h *lab.Host) { h.VM.HugePages = 2 << 20 },
		"hugepages 1G":   func(h *lab.Host) { h.VM.HugePages = gib },
		"shared memory":  func(h *lab.Host) { h.VM.Shared = true },
		"xml":            func(h *lab.Host) { h.VM.XML = []lab.XMLChange{{At: "features", Add: "<pae/>"}} },
		"firmware":       func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFI },
		"secure boot":    func(h *lab.Host) { h.VM.Firmware = lab.FirmwareUEFISecure },
		"cpus":           func(h *lab.Host) { h.VM.CPUs++ },
		"cpu":            func(h *lab.Host) { h.VM.CPU = "host-model" },
		"memory":         func(h *lab.Host) { h.VM.Memory += gib },
		"video":          func(h *lab.Host) { h.VM.Video = "none" },
		"bus of a disk":  func(h *lab.Host) { h.VM.Disks[0].Bus = "scsi" },
		"pool of a disk": func(h *lab.Host) { h.VM.Disks[0].Pool = "fast" },
		"format":         func(h *lab.Host) { h.VM.Disks[0].Format = lab.DiskRaw },
		"volume":         func(h *lab.Host) { h.VM.Disks[0].Volume = "data" },
		"model of NIC":   func(h *lab.Host) { h.Model = "e1000" },
		"mtu":            func(h *lab.Host) { h.Network.MTU = 9000 },
		"bridge":         func(h *lab.Host) { h.VM.Hypervisor.Bridges[0].Bridge = "br1" },
	} {
		d := digest(change)
		if other := seen[d]; other != "" {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

func TestUUIDIsStableAndUnique(t *testing.T) {
	t.Parallel()
	uuid := func(labName, host string) string {
		l := oneHost(func(h *lab.Host) { h.Name = host })
		l.Name = labName
		table, err := virt.Compile(l)
		check(t, err)
		xml, err := table.XML(host)
		check(t, err)
		_, rest, _ := strings.Cut(xml, "<uuid>")
		id, _, _ := strings.Cut(rest, "</uuid>")
		return id
	}
	// Constant: existing machines are found by it.
	if got, want := uuid("telco", "master-0"), "99abe911-3eed-5cac-89f8-7fb8248d77ee"; got != want {
		t.Errorf("UUID %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, pair := range [][2]string{{"telco", "master-0"}, {"telco", "master-1"}, {"telcom", "aster-0"}, {"lab2", "master-0"}} {
		seen[uuid(pair[0], pair[1])] = true
	}
	if len(seen) != 4 {
		t.Errorf("four machines share %d UUIDs", len(seen))
	}
}

func TestHostWithoutVM(t *testing.T) {
	t.Parallel()
	l := oneHost(func(h *lab.Host) { h.VM = nil })
	table, err := virt.Compile(l)
	check(t, err)
	if hosts := table.Hosts(); len(hosts) != 0 {
		t.Errorf("hosts %v, want none", hosts)
	}
	if _, err := table.XML("master-0"); err == nil || !strings.Contains(err.Error(), "give it a vm") {
		t.Errorf("got %v, want a hint", err)
	}
}

func BenchmarkCompile(b *testing.B) {
	l := oneHost()
	h := l.Hosts[0]
	for len(l.Hosts) < 10_000 {
		l.Hosts = append(l.Hosts, h)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := virt.Compile(l); err != nil {
			b.Fatal(err)
		}
	}
}
