package load

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

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
		return word(v, lab.OSes()...)
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
	case *lab.RedfishRole:
		return word(v, lab.RedfishAdministrator, lab.RedfishOperator, lab.RedfishReadOnly)
	case *bootMode:
		return word(v, bootMode(lab.FirmwareBIOS), bootMode(lab.FirmwareUEFI))
	case *lab.NetworkForward:
		return word(v, lab.ForwardBridge, lab.ForwardNAT, lab.ForwardIsolated)
	}
	return vmWordOf(p)
}

// vmWordOf is wordOf of what virtual machines are made of.
func vmWordOf(p any) textual {
	switch v := p.(type) {
	case *diskBus:
		return word(v, "virtio", "scsi", "sata", "ide", "usb")
	case *diskCache:
		return word(v, "default", "none", "writethrough", "writeback", "directsync", "unsafe")
	case *diskFormat:
		return word(v, lab.DiskQCOW2, lab.DiskRaw)
	case *vmArch:
		return word(v, "x86_64", vmArch(lab.ArchARM64))
	case *videoModel:
		return word(v, "vga", "virtio", "qxl", "none")
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
		*e.v = T(meant)
		return &guessed{fmt.Sprintf("%q is not known: did you mean %s?", s, meant)}
	}
	return fmt.Errorf("%q is not known: want %s", s, orList(names))
}

// nearestKey returns the key that a person probably means; empty: none.
func nearestKey(s string, known []string) string {
	for _, other := range strings.Fields(otherKeys[strings.ToLower(s)]) {
		if slices.Contains(known, other) {
			return other
		}
	}
	longer := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return len(k) != len(s)+1 || !lacksOne(s, k) })
	if len(longer) == 1 {
		return longer[0]
	}
	return lab.Nearest(s, known)
}

// lacksOne reports whether s is word without one of its letters.
func lacksOne(s, word string) bool {
	for i := range word {
		if word[:i]+word[i+1:] == s {
			return true
		}
	}
	return false
}

// otherKeys are words that people have for keys of the lab file, those of dnsmasq, ISC dhcpd, Kea, HAProxy, libvirt, Terraform and Ansible, in lower
// case; of several, the one that the mapping knows is meant.
var otherKeys = map[string]string{
	"bind": "listen interface", "bind_address": "listen", "listen_address": "listen", "listen-address": "listen", "port": "listen", "frontend": "listen balancers", "frontends": "balancers", "backend": "backends balancers", "backends": "balancers", "cookie": "sticky", "default-server": "check", "httpchk": "check", "use_backend": "match", "acl": "match",
	"servers": "backends forward dns", "server": "backends forward dns", "members": "backends", "member": "backends", "upstreams": "backends forward", "pool_members": "backends", "targets": "backends",
	"algorithm": "balance", "lb_method": "balance", "health_check": "check", "healthcheck": "check", "healthchecks": "check", "option": "options check", "protocol": "mode",
	"dns_servers": "dns", "dns-servers": "dns", "dns_server": "dns", "nameserver": "dns", "nameservers": "dns forward", "name_servers": "dns", "domain-name-servers": "dns", "resolvers": "dns forward", "forwarders": "forward", "forwarder": "forward",
	"domain_name": "domain", "domain-name": "domain", "dns_domain": "domain", "search_domains": "search", "domain-search": "search", "dns_search": "search",
	"ntp_servers": "ntp", "ntp-servers": "ntp", "time_servers": "ntp",
	"macaddr": "mac", "macaddress": "mac", "mac_address": "mac", "mac-address": "mac", "hwaddr": "mac", "hwaddress": "mac", "hw-address": "mac", "hw_address": "mac", "hardware": "mac", "ethernet": "mac", "lladdr": "mac",
	"ipaddr": "ip address", "ip_address": "ip address", "ip-address": "ip address", "ipv4": "ip address", "ipv4_address": "ip address", "fixed-address": "ip", "fixed_address": "ip", "addr": "ip address", "addresses": "ip address listen", "ipv6": "ip6 subnet6", "ip6_address": "ip6", "ipv6_address": "ip6",
	"cidr": "subnet", "prefix": "subnet", "network": "subnet", "netmask": "subnet", "subnet4": "subnet", "subnet6_prefix": "subnet6",
	"gateway": "router via", "default_gateway": "router", "default-gateway": "router", "gw": "router via", "routers": "router", "destination": "to", "dest": "to", "dst": "to", "next_hop": "via", "nexthop": "via",
	"nic": "interface nics", "device": "interface", "dev": "interface", "bridge": "interface bridges", "vlan_id": "vlan",
	"dhcp_range": "pools range", "dhcp-range": "pools range", "ranges": "pools range", "pool": "pools range", "range": "pools", "reservations": "hosts", "dhcp-host": "hosts", "static_leases": "hosts",
	"lease_time": "lease", "lease-time": "lease", "default-lease-time": "lease", "valid-lifetime": "lease", "max-lease-time": "lease", "leasetime": "lease", "ttl": "lease",
	"subnets": "networks", "machines": "hosts", "nodes": "hosts", "groups": "profiles", "loadbalancers": "balancers", "load_balancers": "balancers", "loadbalancer": "balancers", "load_balancer": "balancers", "kvm": "hypervisors",
	"os_type": "os", "distro": "os", "operating_system": "os", "kickstart": "config", "preseed": "config", "ignition": "config", "user_data": "config", "user-data": "config", "autoinstall": "config", "cloud_config": "config", "ks": "config",
	"cmdline": "args", "append": "args", "kernel_args": "args", "kernel_params": "args", "kargs": "args", "ramdisk": "initrd", "initramfs": "initrd", "vmlinuz": "kernel", "root_disk": "install_to", "disk": "install_to disks", "install_disk": "install_to", "root_device": "install_to",
	"vcpu": "cpus", "vcpus": "cpus", "cores": "cpus", "ram": "memory", "mem": "memory", "memory_mb": "memory", "memory_mib": "memory", "storage": "disks", "volumes": "disks", "boot_firmware": "firmware", "bios": "firmware", "cpu_model": "cpu", "cpu_mode": "cpu", "machine_type": "machine",
	"hostname": "aliases", "hostnames": "aliases", "alias": "aliases", "cname": "aliases", "cnames": "aliases", "label": "role", "labels": "vars", "variables": "vars", "metadata": "vars", "type": "kind", "vip": "address", "vips": "address",
	"api": "address", "api_vip": "address", "apivip": "address", "api_vips": "address", "apivips": "address", "apps": "ingress", "ingress_vip": "ingress", "ingressvip": "ingress", "ingress_vips": "ingress", "ingressvips": "ingress",
	"ipmi_address": "ipmi", "user": "username", "pass": "password_file", "password": "password_file", "tls_cert": "certificates", "cert": "certificates certificate", "crt": "certificates certificate", "data_dir": "state", "statedir": "state", "tftp_root": "files", "tftp-root": "files", "root": "files", "retries": "fall", "every": "interval", "inter": "interval",
}

// A guessed is the error of a text that is not valid, where the value has been set to what was probably meant: then nothing is
// reported that follows from the same mistake.
type guessed struct{ reason string }

// Error implements error.
func (g *guessed) Error() string { return g.reason }

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

// unknown reports a key that n cannot have. It returns the key that was probably meant and its value, so that nothing is reported
// that follows from the same mistake; empty: not known.
func (d *decoder) unknown(n, k, v *yaml.Node, known []string) (meant string, value *yaml.Node) {
	word := strings.TrimPrefix(k.Value, "-")
	if rest, ok := d.withoutColon(k, v); ok {
		word, _, _ = strings.Cut(k.Value, " ")
		v = rest
	} else if before, _, _ := strings.Cut(k.Value, " "); strings.Contains(before, ":") && d.almostKey(k, known) {
		d.incomplete[d.key()] = true
		return "", nil
	}
	dash, there := word != k.Value && v != nil && k.Value[0] == '-', slices.Contains(known, word)
	switch {
	case there && dash:
		d.problem(k, "unknown key %q: want %[2]s without -, or a space between them", k.Value, word)
	case there:
		d.colonMissing(k, word)
	default:
		if word = d.suggest(k, known); word == "" {
			d.incomplete[d.key()] = true
			return "", nil
		}
	}
	if hasKey(n, word) {
		return "", nil
	}
	return word, v
}

// suggest reports an unknown key, with the one that was probably meant, which it returns.
func (d *decoder) suggest(k *yaml.Node, known []string) (meant string) {
	if meant = nearestKey(k.Value, known); meant == "" {
		d.problem(k, "unknown key %q: want %s", k.Value, orList(slices.Sorted(slices.Values(known))))
		return ""
	}
	d.problem(k, "unknown key %q: did you mean %s?", k.Value, meant)
	return meant
}

// withoutColon returns the value of a key that reads "key value", or "key {a" with the value "b}", because a colon is missing.
func (d *decoder) withoutColon(k, v *yaml.Node) (value *yaml.Node, ok bool) {
	word, rest, cut := strings.Cut(k.Value, " ")
	rest = strings.TrimLeft(rest, " ")
	if !cut || k.Style != 0 || rest == "" || !lab.IsName(word) {
		return nil, false
	}
	if !isNull(v) {
		if v.Kind != yaml.ScalarNode || !strings.ContainsRune("{[", rune(rest[0])) {
			return nil, false
		}
		rest += ": " + v.Value
	}
	doc, err := oneDocument([]byte(rest))
	if err != nil || len(doc.Content) == 0 {
		return nil, false
	}
	moveTo(doc.Content[0], k.Line, k.Column+len(k.Value)-len(rest))
	return doc.Content[0], true
}

// moveTo gives a node of a line that was parsed alone its place.
func moveTo(n *yaml.Node, line, column int) {
	n.Line, n.Column = line, max(n.Column+column-1, 1)
	for _, c := range n.Content {
		moveTo(c, line, column)
	}
}

func (d *decoder) colonMissing(k *yaml.Node, word string) {
	_, rest, _ := strings.Cut(k.Value, " ")
	d.problem(after(k, word), "a colon is missing after %s: want %[1]s: %s", word, lab.Shortened(rest, maxShown))
}
