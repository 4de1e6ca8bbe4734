package dhcpd

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Option codes that the codec knows only as numbers.
const (
	optOverload        = 52  // RFC 2132 section 9.3
	optFQDN            = 81  // RFC 4702
	optSubnetSelection = 118 // RFC 3011
	optIPXE            = 175 // iPXE's encapsulated options
	optMSRoutes        = 249 // option 121 under Microsoft's number

	agentCircuitID      = 1  // RFC 3046 section 3.1
	agentRemoteID       = 2  // RFC 3046 section 3.2
	agentLinkSelection  = 5  // RFC 3527
	agentServerOverride = 11 // RFC 5107
	agentSourcePort     = 19 // RFC 8357
)

const maxHops = 16 // RFC 1542 section 4.1.1

// A Stage is who speaks with a machine's hardware address: they come one after the other in one boot and get the same
// address, but not the same boot file.
type Stage string

// The stages of a boot.
const (
	StagePXE  Stage = "pxe"  // firmware that loads by TFTP: option 60 starts with PXEClient
	StageHTTP Stage = "http" // firmware that loads by HTTP: option 60 starts with HTTPClient
	StageIPXE Stage = "ipxe" // iPXE
	StageOS   Stage = "os"   // an installer or an installed system; never given a boot file
)

// A request is what a client or its relay said, reduced to what this server acts on. Addresses that were 0.0.0.0 or
// absent are invalid.
type request struct {
	kind      dhcpv4.MessageType
	xid       [4]byte
	flags     uint16
	mac       lab.MAC
	ciaddr    netip.Addr
	giaddr    netip.Addr
	requested netip.Addr // option 50
	server    netip.Addr // option 54
	subnet    netip.Addr // RFC 3527 link selection, else RFC 3011 subnet selection, else giaddr
	override  netip.Addr // RFC 5107
	relayPort bool       // RFC 8357: answer the relay's source port
	stage     Stage
	arch      iana.Arch
	hasArch   bool
	maxSize   int // option 57, 0: absent
	hostname  string

	clientID, agentInfo, uuid []byte
	fqdn                      []byte    // option 81
	vendor, user              []byte    // options 60 and 77
	circuit, remote           []byte    // of option 82
	wants                     [4]uint64 // option 55 as a set
	wantsAll                  bool      // no option 55: everything there is
}

func (r *request) broadcast() bool { return r.flags&0x8000 != 0 }

// asks reports whether the client asked for the option.
func (r *request) asks(code uint8) bool {
	return r.wantsAll || r.wants[code>>6]&(1<<(code&63)) != 0
}

// parse reads a packet, or says why it gets no answer. The request keeps nothing of b.
func parse(b []byte) (*request, dropReason) {
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil, dropMalformed
	}
	readOverload(p.Options, b)
	if p.OpCode != dhcpv4.OpcodeBootRequest || len(p.Options[53]) != 1 {
		return nil, dropNotRequest
	}
	if p.HWType != iana.HWTypeEthernet || len(p.ClientHWAddr) != 6 {
		return nil, dropHardware
	}
	mac := lab.MAC(p.ClientHWAddr)
	if mac.IsZero() || mac[0]&1 != 0 {
		return nil, dropHardware // a group address cannot be a client, and an answer to it would reach everybody
	}
	if p.HopCount > maxHops {
		return nil, dropHops
	}
	r := &request{
		kind: p.MessageType(), xid: p.TransactionID, flags: p.Flags, mac: mac,
		ciaddr: addrOf(p.ClientIPAddr), giaddr: addrOf(p.GatewayIPAddr),
		requested: addrOf(p.Options[50]), server: addrOf(p.Options[54]),
		clientID: p.Options[61], agentInfo: p.Options[82], uuid: p.Options[97],
		hostname: cleanHostname(p.Options[12]), fqdn: p.Options[optFQDN],
		vendor: p.Options[60], user: p.Options[77],
	}
	if r.hostname == "" {
		r.hostname = cleanHostname(fqdnName(r.fqdn))
	}
	if v := p.Options[57]; len(v) == 2 {
		r.maxSize = int(binary.BigEndian.Uint16(v))
	}
	r.parseWants(p.Options[55])
	r.parseStage(p)
	r.parseRelay(p.Options[optSubnetSelection])
	return r, dropNone
}

func (r *request) parseWants(list []byte) {
	r.wantsAll = len(list) == 0
	for _, code := range list {
		r.wants[code>>6] |= 1 << (code & 63)
	}
}

// parseStage tells firmware, iPXE and systems apart. iPXE also calls itself PXEClient, so it is looked for first. It
// writes its user class raw, against RFC 3004; the codec's UserClass copes with both.
func (r *request) parseStage(p *dhcpv4.DHCPv4) {
	vendor := string(p.Options[60])
	_, hasIPXE := p.Options[optIPXE]
	class := p.Options[77]
	switch {
	case hasIPXE, bytes.Contains(class, []byte("iPXE")), bytes.Contains(class, []byte("Tinkerbell")):
		r.stage = StageIPXE
	case strings.HasPrefix(vendor, "HTTPClient"):
		r.stage = StageHTTP
	case strings.HasPrefix(vendor, "PXEClient"):
		r.stage = StagePXE
	default:
		r.stage = StageOS
	}
	if v := p.Options[93]; len(v) >= 2 {
		r.arch, r.hasArch = iana.Arch(binary.BigEndian.Uint16(v)), true
		return
	}
	r.arch, r.hasArch = archOf(vendor)
}

// archOf reads "PXEClient:Arch:00007:UNDI:003000", for firmware that leaves option 93 out.
func archOf(vendor string) (iana.Arch, bool) {
	_, rest, found := strings.Cut(vendor, ":Arch:")
	if !found {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	return iana.Arch(n), err == nil
}

func (r *request) parseRelay(subnet []byte) {
	r.subnet = addrOf(subnet)
	for code, value := range suboptions(r.agentInfo) {
		switch code {
		case agentCircuitID:
			r.circuit = value
		case agentRemoteID:
			r.remote = value
		case agentLinkSelection:
			if a := addrOf(value); a.IsValid() {
				r.subnet = a
			}
		case agentServerOverride:
			r.override = addrOf(value)
		case agentSourcePort:
			r.relayPort = true
		}
	}
	if !r.subnet.IsValid() {
		r.subnet = r.giaddr
	}
}

// line names the relay's port that the machine sits behind, circuit and remote id in hexadecimal digits; empty without a
// relay that tells.
func (r *request) line() string {
	if len(r.circuit)+len(r.remote) == 0 {
		return ""
	}
	return hex.EncodeToString(r.circuit) + "/" + hex.EncodeToString(r.remote)
}

// asker is what pools are chosen by.
func (r *request) asker() lab.Asker {
	return lab.Asker{
		MAC: r.mac, Arch: uint16(r.arch), HasArch: r.hasArch, VendorClass: r.vendor, UserClass: r.user,
		CircuitID: r.circuit, RemoteID: r.remote,
	}
}

// readOverload adds the options that stand in the fields file and sname, where option 52 says so. The codec leaves them
// out. An option that goes on from one field into the next is put together again (RFC 2131 section 4.1, RFC 3396).
func readOverload(options dhcpv4.Options, b []byte) {
	where := options[optOverload]
	if len(where) != 1 || len(b) < headerSize {
		return
	}
	for _, field := range []struct {
		bit         byte
		first, last int
	}{{1, 108, 236}, {2, 44, 108}} { // file before sname
		if where[0]&field.bit != 0 {
			readOptions(options, b[field.first:field.last])
		}
	}
}

// readOptions reads options up to the end mark, or up to one that is cut short.
func readOptions(options dhcpv4.Options, b []byte) {
	for len(b) > 0 && b[0] != 255 {
		if b[0] == 0 {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return
		}
		value := b[2 : 2+int(b[1])]
		if b[0] != optOverload {
			options[b[0]] = append(options[b[0]], value...)
		}
		b = b[2+len(value):]
	}
}

// suboptions yields the sub-options of option 82 (RFC 3046 section 2.0) up to the first that is cut short.
func suboptions(b []byte) func(yield func(uint8, []byte) bool) {
	return func(yield func(uint8, []byte) bool) {
		for len(b) >= 2 {
			n := int(b[1])
			if len(b) < 2+n || !yield(b[0], b[2:2+n]) {
				return
			}
			b = b[2+n:]
		}
	}
}

// addrOf returns the IPv4 address in b, invalid unless b holds exactly one that is not 0.0.0.0.
func addrOf[T ~[]byte](b T) netip.Addr {
	if len(b) != net.IPv4len {
		return netip.Addr{}
	}
	a := netip.AddrFrom4([4]byte(b))
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// cleanHostname returns the first label of what a client calls itself, or nothing if that is no host name: it is shown
// to people and may become a DNS name.
func cleanHostname(b []byte) string {
	name, _, _ := strings.Cut(strings.TrimRight(string(b), "\x00"), ".")
	if name == "" || len(name) > 63 || name[0] == '-' {
		return ""
	}
	for _, c := range name {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return ""
		}
	}
	return strings.ToLower(name)
}
