package load

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// textOf returns how the value that p points to is written. Types of this package say so themselves; those of the model are listed here.
func textOf(p any) textual {
	switch v := p.(type) {
	case textual:
		return v
	case *lab.Pattern:
		return parsed[lab.Pattern]{v, lab.ParsePattern, patternSpec}
	case *lab.MACPattern:
		return parsed[lab.MACPattern]{v, lab.ParseMACPattern, macPatternSpec}
	case *lab.Arch:
		return parsed[lab.Arch]{v, lab.ParseArch, archSpec}
	case *lab.Size:
		return parsed[lab.Size]{v, lab.ParseSize, sizeSpec}
	case *lab.Range:
		return parsed[lab.Range]{v, parseRange, rangeSpec}
	}
	return wordOf(p)
}

// wordOf is textOf of the types whose values are one of a few words.
func wordOf(p any) textual {
	switch v := p.(type) {
	case *lab.AddressMode:
		return word(v, lab.AddressHold, lab.AddressOff)
	case *lab.DHCPMode:
		return word(v, lab.DHCPServer, lab.DHCPProxy, lab.DHCPOff)
	case *lab.OS:
		return word(v, lab.OSCoreOS, lab.OSOpenShiftAgent, lab.OSFlatcar, lab.OSTalos, lab.OSAnaconda, lab.OSDebian, lab.OSUbuntu, lab.OSAutoYaST,
			lab.OSAgama, lab.OSHarvester, lab.OSKairos, lab.OSESXi, lab.OSProxmox, lab.OSWindows, lab.OSCloudInit, lab.OSDiscover)
	case *lab.InstallMode:
		return word(v, lab.InstallOnce, lab.InstallAlways, lab.InstallNever)
	case *lab.Chain:
		return word(v, lab.ChainIPXE, lab.ChainGRUB)
	case *lab.LocalBoot:
		return word(v, lab.LocalBootAuto, lab.LocalBootExit, lab.LocalBootSanboot, lab.LocalBootNone)
	case *lab.Firmware:
		return word(v, lab.FirmwareBIOS, lab.FirmwareUEFI, lab.FirmwareUEFISecure)
	case *lab.ClusterKind:
		return word(v, lab.OpenShift, lab.Kubernetes, lab.Talos, lab.Plain)
	case *lab.BalanceMode:
		return balanceMode{word(v, lab.ModeTCP, lab.ModeHTTP, lab.ModeUDP)}
	case *lab.Algorithm:
		return word(v, lab.RoundRobin, lab.LeastConn, lab.SourceHash)
	case *lab.AccessLog:
		return word(v, lab.LogNone, lab.LogErrors, lab.LogRequests)
	case *lab.BackendProtocol:
		return word(v, lab.BackendHTTP1, lab.BackendH2C, lab.BackendH2)
	case *lab.Redirect:
		return word(v, lab.RedirectOff, lab.RedirectHTTPS)
	case *lab.OnDown:
		return word(v, lab.OnDownKeep, lab.OnDownClose)
	case *lab.CheckKind:
		return word(v, lab.CheckNone, lab.CheckTCP, lab.CheckTLS, lab.CheckHTTP, lab.CheckHTTPS, lab.CheckDNS)
	case *proxyVersion:
		return word(v, "off", "v1", "v2")
	case *zoneForward:
		return word(v, forwardMissing)
	case *zoneLeases:
		return word(v, leasesTransfer)
	case *macAlgorithm:
		return word(v, "hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1")
	case *storeKind:
		return word(v, "file", "bolt")
	case *diskBus:
		return word(v, "virtio", "scsi", "sata", "ide", "usb")
	case *diskCache:
		return word(v, "default", "none", "writethrough", "writeback", "directsync", "unsafe")
	case *diskFormat:
		return word(v, lab.DiskQCOW2, lab.DiskRaw)
	case *lab.RedfishRole:
		return word(v, lab.RedfishAdministrator, lab.RedfishOperator, lab.RedfishReadOnly)
	case *bootMode:
		return word(v, bootMode(lab.FirmwareBIOS), bootMode(lab.FirmwareUEFI))
	case *vmArch:
		return word(v, "x86_64", vmArch(lab.ArchARM64))
	case *videoModel:
		return word(v, "vga", "virtio", "qxl", "none")
	case *lab.NetworkForward:
		return word(v, lab.ForwardBridge, lab.ForwardNAT, lab.ForwardIsolated)
	case *domainType:
		return word(v, "kvm", "qemu")
	}
	panic(fmt.Sprintf("%T cannot be written in a lab file", p))
}

type (
	proxyVersion string // PROXY protocol that a balancer sends to its backends
	storeKind    string // "file", or "bolt", an older word for it
	diskBus      string // bus of a VM's disk
	diskCache    string // libvirt's driver cache mode
	diskFormat   string // format of a VM's disk
	domainType   string // libvirt domain type
	vmArch       string // architecture of a VM
	videoModel   string // libvirt's video model
	bootMode     string // firmware of bare metal
)

func (v proxyVersion) number() int {
	switch v {
	case "v1":
		return 1
	case "v2":
		return 2
	}
	return 0
}

// A parsed is a type of the model, read by a function of the model.
type parsed[T any] struct {
	v        *T
	read     func(string) (T, error)
	describe func() spec
}

func (p parsed[T]) parse(s string) (err error) {
	*p.v, err = p.read(s)
	return err
}

func (p parsed[T]) spec() spec { return p.describe() }

// An enum is one of a few words.
type enum[T ~string] struct {
	v       *T
	allowed []T
}

func word[T ~string](v *T, allowed ...T) textual { return enum[T]{v, allowed} }

func (e enum[T]) parse(s string) error {
	names := make([]string, len(e.allowed))
	for i, a := range e.allowed {
		if s == string(a) {
			*e.v = a
			return nil
		}
		names[i] = string(a)
	}
	if meant := e.meant(s, names); meant != "" {
		return fmt.Errorf("%q is not known: did you mean %s?", s, meant)
	}
	return fmt.Errorf("%q is not known: want %s", s, orList(names))
}

// A balanceMode is a word, of which HAProxy and nginx have made people expect another.
type balanceMode struct{ textual }

func (m balanceMode) parse(s string) error {
	switch strings.ToLower(s) {
	case "https", "tls", "ssl":
		return fmt.Errorf("%q is no mode: want mode: http with tls: {certificates: [web.pem]}, which ends TLS here, or mode: tcp, which passes it through", s)
	}
	return m.textual.parse(s)
}

// meant returns the allowed word that s probably is; empty: none.
func (e enum[T]) meant(s string, names []string) string {
	for _, word := range []string{strings.ToLower(s), strings.TrimRight(strings.ToLower(s), "0123456789.-_ ")} { // and without a version
		if also := cmp.Or(otherWords[word], word); slices.Contains(names, also) {
			return also
		}
	}
	return lab.Nearest(s, names)
}

// otherWords are words that people have for values of the lab file, in lower case.
var otherWords = map[string]string{
	"rhcos": "coreos", "fcos": "coreos", "scos": "coreos", "fedora-coreos": "coreos", "ignition": "coreos",
	"agent": "openshift-agent", "assisted": "openshift-agent", "container-linux": "flatcar",
	"rhel": "anaconda", "redhat": "anaconda", "fedora": "anaconda", "centos": "anaconda", "alma": "anaconda", "almalinux": "anaconda",
	"rocky": "anaconda", "rockylinux": "anaconda", "oraclelinux": "anaconda", "kickstart": "anaconda",
	"preseed": "debian", "bookworm": "debian", "trixie": "debian", "subiquity": "ubuntu", "autoinstall": "ubuntu",
	"sles": "autoyast", "suse": "autoyast", "opensuse": "autoyast", "leap": "autoyast", "yast": "autoyast",
	"vmware": "esxi", "esx": "esxi", "pve": "proxmox", "winpe": "windows", "cloudinit": "cloud-init", "nocloud": "cloud-init",
	"ocp": "openshift", "okd": "openshift", "ocp4": "openshift", "k8s": "kubernetes", "kube": "kubernetes", "kubeadm": "kubernetes", "k3s": "kubernetes", "rke2": "kubernetes",
	"none": "plain", "efi": "uefi", "ovmf": "uefi", "secureboot": "uefi-secure", "secure": "uefi-secure", "legacy": "bios", "seabios": "bios",
	"yes": "server", "true": "server", "on": "server", "no": "off", "false": "off", "disabled": "off", "proxydhcp": "proxy",
	"layer4": "tcp", "datagram": "udp", "dgram": "udp", "l4": "tcp", "https": "tcp", "l7": "http", "layer7": "http", "rr": "roundrobin", "leastconns": "leastconn", "source-ip": "source", "sticky": "source",
	"1": "v1", "2": "v2", "tcg": "qemu", "virtio-scsi": "scsi", "virtio-blk": "virtio",
}

func (e enum[T]) spec() spec {
	list := []any{}
	for _, a := range e.allowed {
		list = append(list, string(a))
		if string(a) == "off" {
			list = append(list, false) // what a YAML 1.1 reader makes of an unquoted off
		}
	}
	return spec{"enum": list}
}

// didYouMean returns `: did you mean "X"?` for the nearest of names, or nothing if none is near.
func didYouMean(s string, names []string) string {
	if best := lab.Nearest(s, names); best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	return ""
}

// orList writes names as "a, b or c".
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
