package load

import "github.com/bootlab/bootlab/internal/lab"

// The raw types are the lab file as it is written: one struct for each mapping, one field for each key. The loader, the
// JSON Schema and docs/lab-file.md are made from them. The tags: yaml is the key, doc its meaning, def its default,
// req marks a key that must be there.

type rawLab struct {
	Version     repeated[version]               `yaml:"version" req:"yes" doc:"Version of the format: 1. Every file of a folder may have it."`
	Lab         scalar[text]                    `yaml:"lab" def:"the domain" doc:"Name of the lab, shown in the dashboard and in metrics' build info."`
	Domain      scalar[domain]                  `yaml:"domain" req:"yes" doc:"Domain of the hosts that belong to no cluster: they are <host>.<domain>."`
	Appliance   rawAppliance                    `yaml:"appliance" doc:"Settings of the daemon itself. A change takes effect at the next start."`
	Networks    dict[rawNetwork]                `yaml:"networks" doc:"Networks that machines boot in, by name."`
	Profiles    dict[rawProfile]                `yaml:"profiles" doc:"What machines boot, by name."`
	Mirrors     dict[either[webURL, rawMirror]] `yaml:"mirrors" def:"none" doc:"Upstream archives of packages and images that the appliance caches for machines, by name: the upstream's URL, or the keys below. Machines fetch http://APPLIANCE:8080/mirror/NAME/PATH."`
	Images      dict[rawImage]                  `yaml:"images" def:"none" doc:"Files that bootlab images pull fetches, by their path below appliance.files: from url with its sha256, or the artifact of a CoreOS stream, which becomes a folder. Until then a machine that requests it gets 503 and tries again."`
	Hosts       dict[rawHost]                   `yaml:"hosts" doc:"Machines, by name: one DNS label."`
	Clusters    dict[rawCluster]                `yaml:"clusters" doc:"Groups of hosts under one domain, by name."`
	DNS         rawDNS                          `yaml:"dns" doc:"Forwarding, transfers and additional zones."`
	Balancers   dict[rawBalancer]               `yaml:"balancers" doc:"Load balancers, in addition to those that follow from a cluster's kind, by name."`
	Redfish     opt[rawRedfish]                 `yaml:"redfish" def:"off" doc:"Redfish service whose systems are the virtual machines, for Ironic, metal3 and the assisted installer."`
	Hypervisors dict[rawHypervisor]             `yaml:"hypervisors" doc:"libvirt connections that virtual machines run on, by name."`
}

type rawAppliance struct {
	State       scalar[text]                `yaml:"state" def:"/var/lib/bootlab" doc:"Folder of state: leases, timelines, install states, cached images."`
	Store       either[storeKind, rawStore] `yaml:"store" def:"file" doc:"Where state is stored: file (one daemon; state.db below state) or etcd (not supported yet: check and serve refuse it). bolt is an older word for file."`
	Files       scalar[text]                `yaml:"files" def:"./files" doc:"Root of images, documents, templates and public/."`
	HTTP        oneOrMore[listen]           `yaml:"http" def:":8080" doc:"HTTP server for machines: an address or a list. :8080 is that port of the lab's own addresses and loopback, 0.0.0.0:8080 of every IPv4 address, [::]:8080 of every address. URLs that machines get contain the first port."`
	TFTP        oneOrMore[listenOrOff]      `yaml:"tftp" def:":69" doc:"TFTP server: an address or a list, as for http; off: none, where all firmware boots by HTTP or another TFTP server is used. DHCP then sends no boot file to firmware that loads by TFTP."`
	TFTPSingle  scalar[flag]                `yaml:"tftp_single_port" def:"false" doc:"Answer TFTP from the server's port instead of one port for each transfer: for NAT, published container ports, and firewalls without TFTP support."`
	TFTPAllow   scalars[source]             `yaml:"tftp_allow" def:"none" doc:"Clients outside the lab's networks that TFTP answers. Others get an error: the source of a request can be forged."`
	DNS         oneOrMore[listenOrOff]      `yaml:"dns" def:":53" doc:"DNS server, UDP and TCP: an address or a list, as for http; off: none, where other name servers are used. DHCP then sends only the dns of the network."`
	Admin       oneOrMore[listen]           `yaml:"admin" def:"127.0.0.1:9680" doc:"Admin API: dashboard, API, /metrics, /healthz, /readyz; an address or a list, as for http."`
	Addresses   scalar[lab.AddressMode]     `yaml:"addresses" def:"hold" doc:"Who adds the addresses of clusters and balancers to the interfaces of their networks. hold: the daemon, after it has probed that no other machine uses them; it removes them when it stops. off: the admin, keepalived or a router."`
	AdminHosts  scalars[webHost]            `yaml:"admin_hosts" def:"none" doc:"Further names and addresses under which browsers may reach the admin API, and Redfish clients the Redfish service, such as those of a proxy. Its own addresses, localhost, its host name and its name in the lab are known."`
	AdminSocket scalar[text]                `yaml:"admin_socket" def:"/run/bootlab/admin.sock" doc:"Unix socket that the command line uses."`
	User        scalar[text]                `yaml:"user" def:"bootlab, where there is such a user" doc:"User to drop to once the sockets are open, when started as root. root: keep root."`
	Confine     scalar[flag]                `yaml:"confine" def:"true" doc:"Confine the daemon, with the programs that it starts, to its own files and to the system calls of a server, where the kernel can (Landlock, seccomp). off: for hypervisors or programs that need more."`
}

type rawStore struct {
	Etcd   scalars[webURL] `yaml:"etcd" req:"yes" doc:"etcd endpoints, such as https://10.0.0.1:2379."`
	Prefix scalar[text]    `yaml:"prefix" def:"/bootlab" doc:"Prefix of all keys in etcd."`
	CAFile scalar[text]    `yaml:"ca_file" def:"the system's" doc:"File of the certificate authorities that etcd's certificates are checked against."`
}

type rawNetwork struct {
	Subnet    scalar[prefix4]                  `yaml:"subnet" req:"yes" doc:"The subnet, /8 to /30. Subnets must not overlap."`
	Subnet6   scalar[prefix6]                  `yaml:"subnet6" def:"none" doc:"IPv6 subnet of the same network, /48 to /126: the addresses of its hosts are inside it, its clients may use TFTP and the forwarder, and its reverse zone is served. DHCPv6 and router advertisements are not sent."`
	Interface scalar[text]                     `yaml:"interface" def:"none: reached through a DHCP relay" doc:"Interface that this network is served on."`
	Address   scalar[addr4]                    `yaml:"address" def:"the interface's address inside subnet, else the ip of the host with role appliance; behind a relay, that of another network" doc:"The appliance as this network's machines reach it: inside subnet; without interface, in another network."`
	Router    scalar[addr4]                    `yaml:"router" def:"none" doc:"Default gateway (option 3)."`
	DNS       scalars[addr4]                   `yaml:"dns" def:"[address]; none where appliance.dns is off" doc:"Name servers (option 6). []: none are sent."`
	Search    scalars[domain]                  `yaml:"search" def:"[domain]" doc:"Search domains (option 119)."`
	NTP       scalars[addr4]                   `yaml:"ntp" def:"none" doc:"Time servers (option 42)."`
	MTU       scalar[count]                    `yaml:"mtu" def:"not sent" doc:"MTU in bytes (option 26), 576 to 65535."`
	Lease     scalar[span]                     `yaml:"lease" def:"12h" doc:"Lease time, at least 1s."`
	DHCP      scalar[lab.DHCPMode]             `yaml:"dhcp" def:"server" doc:"server; proxy: boot information only, beside another DHCP server; off: silent."`
	Routes    list[rawRoute]                   `yaml:"routes" def:"none" doc:"Static routes (options 121 and 249). The router is added as 0.0.0.0/0, as RFC 3442 asks."`
	Options   dict[either[payload, rawOption]] `yaml:"options" def:"none" doc:"Any other DHCP option by its number: addresses, hex:…, text:…, or u8:, u16:, u32: with a number. A bare number is an error, as its width is unknown. Sent to clients that request it, or with {value: …, force: true} to all."`
	Pools     dict[rawPool]                    `yaml:"pools" def:"none: reserved hosts only" doc:"Addresses for machines without a reservation, by name. The most specific matching pool is used."`
	Probe     scalar[flag]                     `yaml:"probe" def:"true" doc:"Probe an address of a pool for conflicts (ARP, or ICMP behind a relay) before it is offered. Reservations are not probed."`
}

type rawOption struct {
	Value scalar[payload] `yaml:"value" req:"yes" doc:"The value."`
	Force scalar[flag]    `yaml:"force" def:"false" doc:"Send it even to clients that do not request it in option 55."`
}

type rawRoute struct {
	To  scalar[prefix4] `yaml:"to" req:"yes" doc:"Destination."`
	Via scalar[addr4]   `yaml:"via" req:"yes" doc:"Gateway."`
}

type rawPool struct {
	Range       scalar[lab.Range]                `yaml:"range" req:"yes" doc:"First and last address. Reserved addresses inside are skipped."`
	MAC         oneOrMore[lab.MACPattern]        `yaml:"mac" def:"anyone" doc:"Only machines with such a MAC: 52:54:00:*:*:*, or 52:54:00:00:00:00/24."`
	Arch        oneOrMore[lab.Arch]              `yaml:"arch" def:"any" doc:"Only firmware of such an architecture (option 93): bios, uefi-ia32, uefi-x64, uefi-arm32, uefi-arm64, uefi-riscv64, …, for PXE and for HTTP boot; or the number of one code."`
	VendorClass oneOrMore[lab.Pattern]           `yaml:"vendor_class" def:"any" doc:"Only machines that send such a vendor class (option 60): HTTPClient*."`
	UserClass   oneOrMore[lab.Pattern]           `yaml:"user_class" def:"any" doc:"Only machines that send such a user class (option 77), alone or in a list."`
	CircuitID   oneOrMore[lab.Pattern]           `yaml:"circuit_id" def:"any" doc:"Only machines behind such a port of a relay (option 82 sub-option 1): eth0/7, or hex:0001ff."`
	RemoteID    oneOrMore[lab.Pattern]           `yaml:"remote_id" def:"any" doc:"Only machines behind such a relay (option 82 sub-option 2): sw-7*."`
	Routes      list[rawRoute]                   `yaml:"routes" def:"the network's" doc:"Static routes, as in networks."`
	Options     dict[either[payload, rawOption]] `yaml:"options" def:"the network's" doc:"DHCP options by number, as in networks."`
	Lease       scalar[span]                     `yaml:"lease" def:"the network's" doc:"Lease time."`
	PerPort     scalar[count]                    `yaml:"per_port" def:"0: no limit" doc:"Limit of addresses for the clients behind one relay port."`
	Profile     scalar[ident]                    `yaml:"profile" def:"none: boots nothing" doc:"Profile that such a machine boots."`
}

type rawProfile struct {
	OS          scalar[lab.OS]          `yaml:"os" def:"none: args alone" doc:"Operating system: selects kernel arguments, how documents are delivered and how the end of an installation is detected; see docs/os. discover boots nothing: an unknown machine reports its hardware and waits to be adopted."`
	Tree        scalar[text]            `yaml:"tree" def:"none" doc:"Folder of the unpacked installation medium, below files: all of it is served, and kernel and initrd are taken from there where the recipe knows their paths."`
	Kernel      scalar[text]            `yaml:"kernel" def:"that of tree" doc:"Kernel, below files."`
	Initrd      scalars[text]           `yaml:"initrd" def:"those of tree, else none" doc:"Initial RAM disks, below files, in order."`
	Rootfs      scalar[text]            `yaml:"rootfs" def:"none" doc:"Root file system, below files."`
	Image       scalar[text]            `yaml:"image" def:"none" doc:"Disk image that VMs get an overlay of, or beside a kernel the ISO that the installer loads (ubuntu, agama, proxmox); below files."`
	Args        scalars[text]           `yaml:"args" def:"none" doc:"More kernel arguments; templates."`
	Config      scalar[text]            `yaml:"config" def:"none" doc:"Config document (Ignition, Butane, kickstart, preseed, cloud-init, AutoYaST, Talos …), below files; the path is a template, and the document too."`
	Documents   scalars[text]           `yaml:"documents" def:"none" doc:"More documents, rendered like config and served beside it under their own names: .DocumentsURL."`
	ConfigReads scalar[count]           `yaml:"config_reads" def:"the recipe's" doc:"Complete reads of the config document that one boot may make."`
	InstallTo   scalar[text]            `yaml:"install_to" def:"none" doc:"Disk to install to, such as /dev/vda."`
	Install     scalar[lab.InstallMode] `yaml:"install" def:"once where the recipe installs or install_to is set, else never; never without a kernel" doc:"When the installer runs."`
	Timeout     scalar[limit]           `yaml:"install_timeout" def:"2h" doc:"How long an installer may be silent. Then its machine counts as installed, with a warning, and boots from its own disk until bootlab install. never: no limit."`
	Chain       scalar[lab.Chain]       `yaml:"chain" def:"grub for VMs with firmware uefi-secure, else ipxe" doc:"What UEFI firmware starts: ipxe; or grub: a distribution's signed shim and GRUB, for Secure Boot. BIOS always starts iPXE."`
	IPXE        scalar[text]            `yaml:"ipxe" def:"none" doc:"A whole iPXE script as a template, below files, instead of kernel."`
}

type rawMirror struct {
	URL       oneOrMore[webURL]      `yaml:"url" req:"yes" doc:"Upstream URL, or several with the same files: the first that answers is used."`
	MaxSize   scalar[lab.Size]       `yaml:"max_size" def:"20GiB" doc:"Size of the cache. The least recently used files are removed first."`
	Allow     oneOrMore[lab.Pattern] `yaml:"allow" def:"everything below url" doc:"Only paths that match one of these; * is anything, slashes too: dists/bookworm*, pool/*."`
	Immutable oneOrMore[lab.Pattern] `yaml:"immutable" def:"none" doc:"Paths of files that never change, in addition to the built-in ones (pool/, by-hash/, .deb, .udeb, .rpm, .apk, repodata/HASH-*): they are never revalidated."`
	Fresh     scalar[span]           `yaml:"fresh" def:"30s" doc:"How long any other file is served without revalidation."`
}

type rawImage struct {
	URL      oneOrMore[webURL] `yaml:"url" doc:"URL of the file, or several with the same file."`
	SHA256   scalar[digest]    `yaml:"sha256" doc:"Its SHA-256; required with url."`
	Stream   scalar[text]      `yaml:"stream" doc:"CoreOS stream metadata with locations and checksums, instead of url: a URL, such as https://builds.coreos.fedoraproject.org/streams/stable.json, or a file. The path becomes a folder: of kernel, initramfs and rootfs for format pxe, else of disk."`
	Arch     scalar[text]      `yaml:"arch" def:"x86_64" doc:"Architecture in the stream."`
	Artifact scalar[text]      `yaml:"artifact" def:"metal" doc:"Artifact in the stream, such as metal, qemu or openstack."`
	Format   scalar[text]      `yaml:"format" def:"pxe" doc:"Format in the stream, such as pxe, iso, raw.xz or qcow2.xz."`
}

type rawHost struct {
	NICs    list[rawNIC]                     `yaml:"nics" def:"one NIC: mac, ip, ip6 and network" doc:"NICs in several networks, instead of mac, ip, ip6 and network. The host's name has the addresses of the first, and <host>-<network> those of each other."`
	MAC     oneOrMore[hardware]              `yaml:"mac" def:"none: DNS only" doc:"MAC address, or a list for a machine with several NICs."`
	IP      scalar[addr4]                    `yaml:"ip" def:"from a pool" doc:"Reserved address."`
	IP6     scalar[addr6]                    `yaml:"ip6" def:"none" doc:"IPv6 address, for AAAA and ip6.arpa."`
	Network scalar[ident]                    `yaml:"network" def:"the network whose subnet holds ip" doc:"Network that the host boots in."`
	Cluster scalar[ident]                    `yaml:"cluster" def:"none" doc:"Cluster that the host belongs to."`
	Role    scalar[ident]                    `yaml:"role" def:"none" doc:"bootstrap, control-plane (or master, controlplane, control_plane), worker, appliance (this daemon), in any case; or any other word. Templates see it as written."`
	Profile scalar[ident]                    `yaml:"profile" def:"none: boots nothing" doc:"Profile that the host boots."`
	Chain   scalar[lab.Chain]                `yaml:"chain" def:"the profile's" doc:"What UEFI firmware starts, as in profiles."`
	Aliases scalars[domain]                  `yaml:"aliases" def:"none" doc:"More names, in the host's domain; a name with a dot at the end is absolute."`
	Routes  list[rawRoute]                   `yaml:"routes" def:"the network's" doc:"Static routes, as in networks."`
	Options dict[either[payload, rawOption]] `yaml:"options" def:"the network's" doc:"DHCP options by number, as in networks."`
	Lease   scalar[span]                     `yaml:"lease" def:"the network's" doc:"Lease time."`
	DHCP    scalar[flag]                     `yaml:"dhcp" def:"true" doc:"false (or off): DHCP never answers this machine, in any network; another server does."`
	Vars    vars                             `yaml:"vars" def:"none" doc:"Free values for templates: .Host.Vars."`
	Local   scalar[lab.LocalBoot]            `yaml:"local_boot" def:"auto" doc:"How an installed host boots from its own disk. auto: exit for UEFI, sanboot for BIOS; exit: iPXE ends with an error and the firmware continues its boot order; sanboot: iPXE starts the disk; none: DHCP sends no boot file."`
	VM      opt[rawVM]                       `yaml:"vm" def:"bare metal" doc:"This host is a virtual machine."`
	BMC     opt[rawBMC]                      `yaml:"bmc" def:"none" doc:"Management controller: redfish or ipmi."`
}

type rawNIC struct {
	Network scalar[ident]    `yaml:"network" def:"the network whose subnet holds ip" doc:"Network of the NIC."`
	MAC     scalar[hardware] `yaml:"mac" def:"for a VM: derived from the names of lab, host and network" doc:"MAC address. Bare metal needs it."`
	IP      scalar[addr4]    `yaml:"ip" def:"from a pool" doc:"Reserved address."`
	IP6     scalar[addr6]    `yaml:"ip6" def:"none" doc:"IPv6 address."`
	Boot    scalar[flag]     `yaml:"boot" def:"true for the first, if no other has it" doc:"The host boots from this NIC: DHCP sends boot information to no other."`
	Model   scalar[ident]    `yaml:"model" def:"virtio" doc:"libvirt model of a VM's NIC, such as e1000."`
}

type rawVM struct {
	Hypervisor oneOrMore[ident]                `yaml:"hypervisor" req:"yes" doc:"Hypervisor that the VM runs on. A list, or any: bootlab vm create chooses one of these, or of all, with enough memory, few VMs of the same role and cluster, and the most free memory. The choice stays."`
	CPUs       scalar[count]                   `yaml:"cpus" def:"2" doc:"Virtual CPUs."`
	Memory     scalar[lab.Size]                `yaml:"memory" def:"4GiB" doc:"Memory."`
	Disks      list[either[lab.Size, rawDisk]] `yaml:"disks" def:"none" doc:"Disks: a size, or details."`
	Firmware   scalar[lab.Firmware]            `yaml:"firmware" def:"bios" doc:"Firmware."`
	CPU        scalar[text]                    `yaml:"cpu" def:"the hypervisor's" doc:"libvirt CPU mode or model, such as host-passthrough."`
	Machine    scalar[ident]                   `yaml:"machine" def:"q35, for aarch64 virt" doc:"libvirt machine type."`
	Arch       scalar[vmArch]                  `yaml:"arch" def:"x86_64" doc:"Architecture. aarch64 needs firmware uefi, which is its default."`
	TPM        scalar[flag]                    `yaml:"tpm" def:"false" doc:"An emulated TPM 2.0. The hypervisor needs swtpm."`
	Video      scalar[videoModel]              `yaml:"video" def:"vga, for aarch64 virtio" doc:"Video model. none: no VNC either, only the serial console."`
	HugePages  scalar[lab.Size]                `yaml:"hugepages" def:"none" doc:"Size of the pages that back the memory, such as 2MiB or 1GiB. The hypervisor must have reserved enough of them."`
	Shared     scalar[flag]                    `yaml:"shared_memory" def:"false" doc:"The memory is shared with other processes of the hypervisor, as virtiofs and vhost-user need."`
	Autostart  scalar[flag]                    `yaml:"autostart" def:"false" doc:"The VM starts with its hypervisor."`
	XML        list[rawXMLChange]              `yaml:"xml" def:"none" doc:"Changes of the domain XML, in this order, for what has no key. Name, UUID, metadata, memory and domain type stay as they are."`
}

type rawXMLChange struct {
	At     scalar[text] `yaml:"at" req:"yes" doc:"Path of elements below domain, such as devices/disk[1]/driver or features; . is domain. All that it finds change."`
	Add    scalar[text] `yaml:"add" doc:"XML elements, which become its last children."`
	Set    vars         `yaml:"set" doc:"Attributes and their values."`
	Remove scalar[flag] `yaml:"remove" def:"false" doc:"Removes it."`
}

type rawDisk struct {
	Size   scalar[lab.Size]   `yaml:"size" doc:"Size. A larger one makes the disk larger (bootlab vm apply); a disk is never made smaller."`
	Bus    scalar[diskBus]    `yaml:"bus" def:"virtio" doc:"Bus."`
	Cache  scalar[diskCache]  `yaml:"cache" def:"the hypervisor's" doc:"libvirt's driver cache mode."`
	Pool   scalar[text]       `yaml:"pool" def:"the hypervisor's" doc:"Storage pool."`
	Format scalar[diskFormat] `yaml:"format" def:"qcow2" doc:"Format of the volume. raw has no snapshots, and is no overlay on an image."`
	Volume scalar[text]       `yaml:"volume" def:"one that bootlab creates" doc:"An existing volume of the pool, instead of size. bootlab never changes or deletes it."`
}

type rawBMC struct {
	Redfish      scalar[webURL]     `yaml:"redfish" doc:"URL of a Redfish service."`
	IPMI         scalar[controller] `yaml:"ipmi" doc:"Address of an IPMI controller, or host:port (623 by default)."`
	Username     scalar[text]       `yaml:"username" def:"none" doc:"User name."`
	PasswordFile scalar[text]       `yaml:"password_file" def:"none" doc:"File that holds the password."`
	CAFile       scalar[text]       `yaml:"ca_file" def:"the system's" doc:"File of the certificate authorities, or of the controller's own certificate, that redfish is checked against."`
	Insecure     scalar[flag]       `yaml:"insecure" def:"false" doc:"Do not verify the certificate of redfish. A man in the middle can read the password."`
	Firmware     scalar[bootMode]   `yaml:"firmware" def:"the controller decides" doc:"What the machine boots with where bootlab sets the next boot: bios or uefi. IPMI needs uefi for a machine with UEFI: without it many controllers switch the next boot to BIOS."`
}

type rawCluster struct {
	Kind    scalar[lab.ClusterKind] `yaml:"kind" def:"plain" doc:"openshift: api, api-int, *.apps and balancers for 6443, 22623, 443 and 80; kubernetes: api and 6443; talos: api, 6443 and 50000; plain: only a domain."`
	Domain  scalar[domain]          `yaml:"domain" def:"the lab's domain" doc:"Hosts are <host>.<cluster>.<domain>."`
	Address scalar[addr4]           `yaml:"address" def:"none: no api names, no balancers" doc:"Address of api, api-int and *.apps in DNS; the load balancer listens on it."`
	Ingress scalar[addr4]           `yaml:"ingress" def:"address" doc:"Address of *.apps, if it differs."`
	EtcdSRV scalar[flag]            `yaml:"etcd_srv" def:"false" doc:"_etcd-server-ssl._tcp SRV records for the control plane, for OpenShift before 4.4."`
	Balance scalar[flag]            `yaml:"balancer" def:"true" doc:"off: names only. The cluster's own keepalived or another load balancer owns address and ingress, as in an installation that provisions its machines itself (IPI)."`
	SNI     scalar[flag]            `yaml:"sni" def:"false" doc:"Share address and ingress with other clusters, distinguished by TLS server name and HTTP host. All of them must set it."`
	Health  scalar[flag]            `yaml:"health" def:"false" doc:"For a cluster without address: api, api-int and *.apps have the addresses of its machines whose health checks pass. No balancer listens."`

	Kubeconfig scalar[text] `yaml:"kubeconfig" def:"none" doc:"Kubeconfig of an OpenShift cluster, with a client certificate or a token (auth/kubeconfig of openshift-install): the bootstrap machine is removed from the balancers once the ConfigMap kube-system/bootstrap says complete. A file that changes is read again."`

	Log scalar[lab.AccessLog] `yaml:"log" def:"none" doc:"Access log of the cluster's balancers, as log of balancers: none, errors or requests."`
}

type rawDNS struct {
	Forward      list[either[upstream, rawUpstream]]       `yaml:"forward" def:"none: authoritative only" doc:"Name servers for recursion, for clients inside the lab's networks only: addresses, a file such as /etc/resolv.conf, or address and tls: the name to verify (DNS over TLS)."`
	ForwardZones dict[list[either[upstream, rawUpstream]]] `yaml:"forward_zones" def:"none" doc:"Name servers for questions below one domain, by domain, as in forward."`
	Cache        rawCache                                  `yaml:"cache" doc:"Cache of the forwarder."`
	Allow        scalars[source]                           `yaml:"allow" def:"none" doc:"Further clients that may use the forwarder."`
	RateLimit    scalar[count]                             `yaml:"rate_limit" def:"200" doc:"Replies per second over UDP to one network (/24, /56) outside of the lab's and of allow. Of those beyond, half are dropped and half truncated, so that the client asks by TCP. 0: no limit."`
	Transfer     scalars[access]                           `yaml:"transfer" def:"none" doc:"Clients that may transfer zones (AXFR, IXFR): an address or prefix, 'key NAME' for those that sign with that key of dns.keys, or both, such as '192.168.130.10 key NAME'."`
	Notify       scalars[secondary]                        `yaml:"notify" def:"the single addresses of transfer, with their keys" doc:"Secondaries that are notified when a zone changes (NOTIFY): an address, or one with a key, such as '192.168.130.10 key NAME'. []: none."`
	Keys         dict[rawKey]                              `yaml:"keys" def:"none" doc:"TSIG keys (RFC 8945), by name."`
	Zones        dict[rawZone]                             `yaml:"zones" def:"none" doc:"Additional zones, by domain: records or file."`
}

type rawUpstream struct {
	Address scalar[tlsServer] `yaml:"address" req:"yes" doc:"Address, or address:port (853 by default)."`
	TLS     scalar[domain]    `yaml:"tls" req:"yes" doc:"Name that the server's certificate must have. Questions are sent over TLS only (RFC 7858)."`
	CAFile  scalar[text]      `yaml:"ca_file" def:"the system's authorities" doc:"Certificates of the authorities that may sign the server's."`
}

type rawCache struct {
	Entries scalar[count]    `yaml:"entries" def:"4096" doc:"Answers at most."`
	Size    scalar[lab.Size] `yaml:"size" def:"2MiB" doc:"Memory at most."`
}

type rawKey struct {
	Algorithm  scalar[macAlgorithm] `yaml:"algorithm" def:"hmac-sha256" doc:"Algorithm of the key. What secret_file says has precedence."`
	SecretFile scalar[text]         `yaml:"secret_file" req:"yes" doc:"File that holds the secret: in base64, or as tsig-keygen writes it."`
}

type rawZone struct {
	Records scalars[text]       `yaml:"records" doc:"Zone-file lines, relative to the zone."`
	File    scalar[text]        `yaml:"file" doc:"Zone file, instead of records."`
	Forward scalar[zoneForward] `yaml:"forward" def:"the lab answers for the whole zone" doc:"missing: names that the zone does not have are forwarded, for a domain that others use too. The zone of the lab's domain, of a cluster or of a network may be named without records."`
	Update  scalars[access]     `yaml:"update" def:"none" doc:"Who may change the zone by dynamic update (RFC 2136), such as 'key external-dns'. A key is required. Names of the lab file cannot be changed."`
	UpdRes  scalars[text]       `yaml:"update_reserved" def:"none" doc:"Names of the zone that updates may have although they are reserved: wpad, isatap, autodiscover, autoconfig, localhost and other names of /etc/hosts, bootlab, ns, api, api-int, and wildcards such as '*.dev'."`
	Leases  scalar[zoneLeases]  `yaml:"leases" def:"not in transfers" doc:"transfer: zone transfers have the names of DHCP clients, as of the last 30s. The zone of the lab's domain or of a network may be named without records."`
}

type rawBalancer struct {
	Listen         oneOrMore[bind]                       `yaml:"listen" def:"none; required without health" doc:"Address and port to listen on, or a list of them; a port may be a range, as in 192.168.16.10:30000-32767. Several balancers may share one if match distinguishes them."`
	Mode           scalar[lab.BalanceMode]               `yaml:"mode" def:"tcp" doc:"tcp: connections; http: requests; udp: datagrams, in sessions by client address and port."`
	Balance        scalar[lab.Algorithm]                 `yaml:"balance" def:"roundrobin" doc:"Algorithm that selects a backend."`
	Check          rawCheck                              `yaml:"check" doc:"Health check."`
	Backends       list[either[backendAddr, rawBackend]] `yaml:"backends" def:"none; required without redirect" doc:"Backends: a host (name, FQDN or alias), an address or a name in DNS, and a port; or these as address, with further keys. Without a port it is the one that the client connected to; then checks need check.port if listen has several."`
	Match          rawMatch                              `yaml:"match" doc:"Connections of a shared listen address that belong to this balancer; none: those that match no other balancer."`
	SendProxy      scalar[proxyVersion]                  `yaml:"send_proxy" def:"off" doc:"PROXY protocol header sent to backends."`
	AcceptProxy    scalars[source]                       `yaml:"accept_proxy" def:"none" doc:"Peers whose PROXY header is accepted."`
	MaxConnections scalar[count]                         `yaml:"max_connections" def:"0: no limit" doc:"Limit of concurrent connections."`
	Queue          scalar[count]                         `yaml:"queue" def:"1024" doc:"Clients that may wait while every backend has its max_connections. Others are reset; in mode http they get 503."`
	Timeouts       rawTimeouts                           `yaml:"timeouts" doc:"Timeouts."`
	Log            scalar[lab.AccessLog]                 `yaml:"log" def:"none" doc:"Requests that are logged (mode http), or connections (mode tcp): none; errors: what ended early, and 5xx; requests: all."`
	TLS            opt[rawBalancerTLS]                   `yaml:"tls" def:"none" doc:"Termination of the clients' TLS, with HTTP/2 and HTTP/1.1 (mode http)."`
	Protocol       scalar[lab.BackendProtocol]           `yaml:"backend_protocol" def:"http1" doc:"What backends speak (mode http): http1; h2c, HTTP/2 without TLS, as gRPC servers do; h2, HTTP/2 with TLS."`
	BackendTLS     opt[rawBackendTLS]                    `yaml:"backend_tls" def:"none" doc:"TLS to backends (mode http); {} verifies them by the system's authorities. Health checks make the same handshake, unless they have a port, ca_file or sni of their own."`
	Redirect       scalar[lab.Redirect]                  `yaml:"redirect" def:"off" doc:"https: requests without TLS get a redirect to the same URL with https (mode http); backends may be missing."`
	TrustedProxies scalars[source]                       `yaml:"trusted_proxies" def:"none" doc:"Peers whose Forwarded and X-Forwarded fields are kept and extended (mode http); those of others are replaced."`
	Sticky         scalar[ident]                         `yaml:"sticky" def:"none" doc:"Name of a cookie that keeps a client at the backend that answered it first (mode http)."`
	Names          scalars[domain]                       `yaml:"names" def:"none" doc:"Names in DNS, in the lab's domain; a name with a dot at the end is absolute. They have the address of listen."`
	Health         scalar[flag]                          `yaml:"health" def:"false" doc:"The names have the addresses of the backends whose health checks pass; those of all if no check passes. listen may be missing: then backends are checked, and nothing is balanced."`
	Responses      scalar[count]                         `yaml:"responses" def:"any number, until timeouts.idle" doc:"Datagrams that a backend answers to each of a client's (mode udp). 1, as in DNS: a session ends with its answer, and a client that gets none in a second is sent to another backend. 0, as in syslog: none; each datagram goes to the next backend."`
	OnDown         scalar[lab.OnDown]                    `yaml:"on_down" def:"keep" doc:"Open connections and requests of a backend that its checks find down: keep or close. In mode http idle ones are closed anyway, and requests without an answer are sent to another backend if they may be."`
}

type rawBackend struct {
	Address        scalar[backendAddr] `yaml:"address" req:"yes" doc:"A host (name, FQDN or alias), an address or a name in DNS, and a port, as in the short form."`
	Weight         scalar[count]       `yaml:"weight" def:"1" doc:"Share of new connections, relative to the other backends: 1 to 256."`
	Backup         scalar[flag]        `yaml:"backup" def:"false" doc:"Use it only while no other backend is up."`
	MaxConnections scalar[count]       `yaml:"max_connections" def:"0: no limit" doc:"Limit of concurrent connections, in mode http of requests. Further clients wait."`
}

type rawBalancerTLS struct {
	Certificates scalars[text] `yaml:"certificates" def:"none; required without acme" doc:"PEM files with a certificate, its chain and its key; the key may be in a file of the same name with .key at the end. The server name selects one. A file that changes is read again."`
	ACME         opt[rawACME]  `yaml:"acme" def:"none" doc:"Certificates from an ACME server, an internal one such as step-ca too. They and the account's key are kept in the state folder."`
}

type rawACME struct {
	Directory scalar[webURL]  `yaml:"directory" req:"yes" doc:"URL of the ACME server's directory, such as https://ca.lab.example.com/acme/acme/directory (step-ca)."`
	CAFile    scalar[text]    `yaml:"ca_file" def:"the system's authorities" doc:"Certificates of the authorities that may sign the server's own certificate, PEM."`
	Email     scalar[text]    `yaml:"email" def:"none" doc:"Address of the account."`
	Names     scalars[domain] `yaml:"names" def:"match.host" doc:"Names that get a certificate each. The server must reach the balancer by them: on port 443 (tls-alpn-01), or a balancer of mode http without tls on port 80 (http-01)."`
}

type rawBackendTLS struct {
	CAFile scalar[text]   `yaml:"ca_file" def:"the system's authorities" doc:"Certificates of the authorities that may sign the backends', PEM. A file that changes is read again."`
	Name   scalar[domain] `yaml:"name" def:"the host's FQDN, else the backend's address" doc:"Name that the backends' certificates must have; sent as the server name."`
	Verify scalar[flag]   `yaml:"verify" def:"true" doc:"off: any certificate is accepted."`
}

type rawCheck struct {
	Kind     scalar[lab.CheckKind] `yaml:"kind" def:"tcp; in mode udp none" doc:"none; tcp: a connect; dns: a query over UDP (mode udp); tls: a handshake, certificate not verified; http and https: a request."`
	Name     scalar[domain]        `yaml:"name" def:"the root, with any answer" doc:"Name whose SOA record is asked for (dns): the server must know its zone, or resolve it."`
	Path     scalar[text]          `yaml:"path" def:"/" doc:"Path to request (http, https)."`
	Port     scalar[port]          `yaml:"port" def:"the backend's" doc:"Port to check."`
	Expect   oneOrMore[statuses]   `yaml:"expect" def:"any 2xx or 3xx" doc:"Status that means healthy, or a list of statuses and ranges such as [200, 300-302] (http, https)."`
	Host     scalar[hostField]     `yaml:"host" def:"the address that is checked" doc:"Host of the request, with a port where it is to have one (http, https)."`
	SNI      scalar[domain]        `yaml:"sni" def:"none" doc:"Server name of the TLS handshake (tls, https)."`
	CAFile   scalar[text]          `yaml:"ca_file" def:"none: any certificate passes" doc:"Certificates of the authorities that may sign the server's, for the name in sni, else in host, else the address (tls, https). It is read for each check."`
	Interval scalar[span]          `yaml:"interval" def:"5s" doc:"Time between two checks."`
	Fast     scalar[span]          `yaml:"fast_interval" def:"1s, if interval is longer" doc:"Time between two checks while the last results contradict the backend's state, or after connections to it failed."`
	Timeout  scalar[span]          `yaml:"timeout" def:"3s" doc:"Time that one check may take."`
	Silence  scalar[patience]      `yaml:"silence" def:"750ms" doc:"Time that a client may wait for an answer before its backend is probed, and gets no new ones if it does not answer that either (modes tcp and http); off: a backend may be silent for any time."`
	Rise     scalar[count]         `yaml:"rise" def:"2" doc:"Successes in a row that make a backend healthy."`
	Fall     scalar[count]         `yaml:"fall" def:"3" doc:"Failures in a row that make a backend unhealthy."`
}

type rawMatch struct {
	SNI  scalars[domain] `yaml:"sni" def:"none" doc:"TLS server names; *.example.com is any name below example.com. In mode http they are hosts."`
	Host scalars[domain] `yaml:"host" def:"none" doc:"HTTP hosts (mode http), as in sni."`
	Path scalars[text]   `yaml:"path" def:"none: every path" doc:"Paths (mode http): /api is /api and everything below it. Of several balancers of an address the longest path wins, among those with the most specific host."`
}

type rawTimeouts struct {
	Connect scalar[span] `yaml:"connect" def:"5s" doc:"Time to reach a backend."`
	Idle    scalar[span] `yaml:"idle" def:"4h; 30s in mode udp" doc:"A connection is closed, a session of mode udp forgotten, after this time without a byte in either direction. The default is long, for logs and watches."`
	Queue   scalar[span] `yaml:"queue" def:"that of connect" doc:"Time that a client may wait while every backend has its max_connections, or after the last has gone down."`
	Server  scalar[span] `yaml:"server" def:"60s" doc:"Time that a backend may take to begin its answer (mode http)."`
	Request scalar[span] `yaml:"request" def:"10s" doc:"Time for a request's first line and header fields (mode http)."`
	Body    scalar[span] `yaml:"body" def:"60s" doc:"Time that a client may be silent within a request's body (mode http)."`
	Keep    scalar[span] `yaml:"keepalive" def:"60s" doc:"Time between two requests of a connection (mode http)."`
}

type rawRedfish struct {
	Listen      oneOrMore[listen]       `yaml:"listen" req:"yes" doc:"Where the service listens: an address or a list, as in appliance.http."`
	Accounts    dict[rawRedfishAccount] `yaml:"accounts" req:"yes" doc:"Who may log in, by user name."`
	TLS         scalar[flag]            `yaml:"tls" def:"true" doc:"off: plain HTTP. Passwords can be read on the way."`
	Certificate scalar[text]            `yaml:"certificate" def:"a self-signed one, redfish.pem below appliance.state" doc:"PEM file with certificate, chain and key. A file that changes is read again."`
	MaxMedia    scalar[lab.Size]        `yaml:"max_media" def:"16GiB" doc:"Size of a virtual medium at most."`
}

type rawRedfishAccount struct {
	PasswordFile scalar[text]            `yaml:"password_file" req:"yes" doc:"File that holds the password."`
	Role         scalar[lab.RedfishRole] `yaml:"role" def:"administrator" doc:"administrator; operator: power, boot and media; readonly."`
}

type rawHypervisor struct {
	URI        scalar[text]                      `yaml:"uri" req:"yes" doc:"libvirt URI, such as qemu+ssh://root@kvm1/system."`
	Bridges    dict[either[text, rawAttachment]] `yaml:"bridges" def:"none" doc:"What carries each network, by network: a Linux bridge, {network: X}: a libvirt network, {ovs: X}: an Open vSwitch bridge, {macvtap: X}: an interface."`
	Pool       scalar[text]                      `yaml:"pool" def:"default" doc:"Storage pool."`
	DomainType scalar[domainType]                `yaml:"domain_type" def:"kvm" doc:"kvm, or qemu: pure emulation."`
}

type rawAttachment struct {
	Network   scalar[text]               `yaml:"network" doc:"libvirt network."`
	Create    scalar[lab.NetworkForward] `yaml:"create" def:"it exists already" doc:"bootlab creates the libvirt network, without libvirt's DHCP and DNS. bridge: on a Linux bridge that exists; nat: the hypervisor routes it, and hides it behind its own address; isolated: it leads nowhere."`
	Bridge    scalar[ident]              `yaml:"bridge" def:"libvirt chooses; with create: bridge required" doc:"Linux bridge of a network with create."`
	Address   scalar[addr4]              `yaml:"address" def:"with nat the lab network's router; else none" doc:"Address of the hypervisor in a network with create: nat or isolated."`
	PortGroup scalar[text]               `yaml:"portgroup" def:"the network's default" doc:"Port group of the libvirt network."`
	OVS       scalar[text]               `yaml:"ovs" doc:"Open vSwitch bridge."`
	Macvtap   scalar[text]               `yaml:"macvtap" doc:"Interface that VMs share by macvtap in mode bridge. The hypervisor itself does not reach them."`
	VLAN      scalar[count]              `yaml:"vlan" def:"none" doc:"VLAN tag, of an Open vSwitch bridge or of a libvirt network on one."`
}
