package lab

import (
	"fmt"
	"strings"
)

// parseOneOf sets v if s is one of the texts allowed.
func parseOneOf[T ~string](v *T, s string, allowed []T) error {
	for _, a := range allowed {
		if s == string(a) {
			*v = a
			return nil
		}
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	hint := strings.Replace(didYouMean(s, names), ":", ";", 1)
	return fmt.Errorf("%q is not known: want %s%s", s, orList(names), hint)
}

func oneOf[T ~string](allowed []T) spec {
	list := []any{}
	for _, a := range allowed {
		list = append(list, string(a))
		if string(a) == "off" {
			list = append(list, false) // what a YAML 1.1 reader makes of an unquoted off
		}
	}
	return spec{"enum": list}
}

func dhcpModes() []DHCPMode              { return []DHCPMode{DHCPServer, DHCPProxy, DHCPOff} }
func (m *DHCPMode) parse(s string) error { return parseOneOf(m, s, dhcpModes()) }
func (DHCPMode) spec() spec              { return oneOf(dhcpModes()) }
func operatingSystems() []OS {
	return []OS{
		OSCoreOS, OSOpenShiftAgent, OSFlatcar, OSTalos, OSAnaconda, OSDebian, OSUbuntu, OSAutoYaST, OSAgama,
		OSHarvester, OSKairos, OSESXi, OSProxmox, OSWindows, OSCloudInit, OSDiscover,
	}
}
func (o *OS) parse(s string) error          { return parseOneOf(o, s, operatingSystems()) }
func (OS) spec() spec                       { return oneOf(operatingSystems()) }
func installModes() []InstallMode           { return []InstallMode{InstallOnce, InstallAlways, InstallNever} }
func (m *InstallMode) parse(s string) error { return parseOneOf(m, s, installModes()) }
func (InstallMode) spec() spec              { return oneOf(installModes()) }
func chains() []Chain                       { return []Chain{ChainIPXE, ChainGRUB} }
func (c *Chain) parse(s string) error       { return parseOneOf(c, s, chains()) }
func (Chain) spec() spec                    { return oneOf(chains()) }
func localBoots() []LocalBoot {
	return []LocalBoot{LocalBootAuto, LocalBootExit, LocalBootSanboot, LocalBootNone}
}
func (b *LocalBoot) parse(s string) error   { return parseOneOf(b, s, localBoots()) }
func (LocalBoot) spec() spec                { return oneOf(localBoots()) }
func firmwares() []Firmware                 { return []Firmware{FirmwareBIOS, FirmwareUEFI, FirmwareUEFISecure} }
func (f *Firmware) parse(s string) error    { return parseOneOf(f, s, firmwares()) }
func (Firmware) spec() spec                 { return oneOf(firmwares()) }
func clusterKinds() []ClusterKind           { return []ClusterKind{OpenShift, Kubernetes, Plain} }
func (k *ClusterKind) parse(s string) error { return parseOneOf(k, s, clusterKinds()) }
func (ClusterKind) spec() spec              { return oneOf(clusterKinds()) }
func balanceModes() []BalanceMode           { return []BalanceMode{ModeTCP, ModeHTTP} }
func (m *BalanceMode) parse(s string) error { return parseOneOf(m, s, balanceModes()) }
func (BalanceMode) spec() spec              { return oneOf(balanceModes()) }
func algorithms() []Algorithm               { return []Algorithm{RoundRobin, LeastConn, SourceHash} }
func (a *Algorithm) parse(s string) error   { return parseOneOf(a, s, algorithms()) }
func (Algorithm) spec() spec                { return oneOf(algorithms()) }
func checkKinds() []CheckKind {
	return []CheckKind{CheckNone, CheckTCP, CheckTLS, CheckHTTP, CheckHTTPS}
}
func (k *CheckKind) parse(s string) error { return parseOneOf(k, s, checkKinds()) }
func (CheckKind) spec() spec              { return oneOf(checkKinds()) }

// A proxyVersion is the PROXY protocol that a balancer speaks to its backends.
type proxyVersion string

func proxyVersions() []proxyVersion          { return []proxyVersion{"off", "v1", "v2"} }
func (v *proxyVersion) parse(s string) error { return parseOneOf(v, s, proxyVersions()) }
func (proxyVersion) spec() spec              { return oneOf(proxyVersions()) }

func (v proxyVersion) number() int {
	switch v {
	case "v1":
		return 1
	case "v2":
		return 2
	}
	return 0
}

// A boltWord is the word bolt.
type boltWord string

func (v *boltWord) parse(s string) error { return parseOneOf(v, s, []boltWord{"bolt"}) }
func (boltWord) spec() spec              { return oneOf([]boltWord{"bolt"}) }

// A diskBus is the bus that a VM's disk sits on.
type diskBus string

func diskBuses() []diskBus              { return []diskBus{"virtio", "scsi", "sata", "ide", "usb", "nvme"} }
func (v *diskBus) parse(s string) error { return parseOneOf(v, s, diskBuses()) }
func (diskBus) spec() spec              { return oneOf(diskBuses()) }

// A diskCache is libvirt's driver cache mode.
type diskCache string

func diskCaches() []diskCache {
	return []diskCache{"default", "none", "writethrough", "writeback", "directsync", "unsafe"}
}
func (v *diskCache) parse(s string) error { return parseOneOf(v, s, diskCaches()) }
func (diskCache) spec() spec              { return oneOf(diskCaches()) }

// A domainType is a libvirt domain type.
type domainType string

func (v *domainType) parse(s string) error { return parseOneOf(v, s, []domainType{"kvm", "qemu"}) }
func (domainType) spec() spec              { return oneOf([]domainType{"kvm", "qemu"}) }
