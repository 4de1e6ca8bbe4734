package wire

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// A MessageType is the value of option 53 (RFC 2132 section 9.6).
type MessageType uint8

// The message types of RFC 2131.
const (
	Discover MessageType = 1 + iota
	Offer
	Request
	Decline
	Ack
	Nak
	Release
	Inform
)

// String returns the type in lower case, such as "discover": a label from a closed set, "unknown" for what RFC 2131 does
// not define.
func (m MessageType) String() string {
	switch m {
	case Discover:
		return "discover"
	case Offer:
		return "offer"
	case Request:
		return "request"
	case Decline:
		return "decline"
	case Ack:
		return "ack"
	case Nak:
		return "nak"
	case Release:
		return "release"
	case Inform:
		return "inform"
	}
	return "unknown"
}

// A ClientKind is the program that sends a machine's packets. The programs of one boot follow each other and get the same address,
// but not the same boot file.
type ClientKind string

// The kinds of clients.
const (
	ClientPXE  ClientKind = "pxe"  // firmware that loads by TFTP: option 60 starts with PXEClient, or U-Boot
	ClientHTTP ClientKind = "http" // firmware that loads by HTTP: option 60 starts with HTTPClient
	ClientIPXE ClientKind = "ipxe" // iPXE
	ClientOS   ClientKind = "os"   // an installer or an installed system
)

// Option codes (RFC 2132, and as said). Only options that this package or the server uses have a name.
const (
	optMask          = 1
	optRouter        = 3
	optDNS           = 6
	optHostname      = 12
	optDomain        = 15
	optMTU           = 26
	optBroadcast     = 28
	optNTP           = 42
	optVendorInfo    = 43
	optRequestedIP   = 50
	optLease         = 51
	optOverload      = 52
	optMessageType   = 53
	optServer        = 54
	optParamList     = 55
	optMessage       = 56
	optMaxSize       = 57
	optRenew         = 58
	optRebind        = 59
	optVendorClass   = 60
	optClientID      = 61
	optTFTPName      = 66
	optBootFile      = 67
	optUserClass     = 77  // RFC 3004
	optRapidCommit   = 80  // RFC 4039
	optFQDN          = 81  // RFC 4702
	optAgentInfo     = 82  // RFC 3046
	optArch          = 93  // RFC 4578
	optNDI           = 94  // RFC 4578
	optUUID          = 97  // RFC 4578
	optV6Only        = 108 // RFC 8925
	optSubnetSelect  = 118 // RFC 3011
	optSearch        = 119 // RFC 3397
	optRoutes        = 121 // RFC 3442
	optTFTPAddresses = 150 // RFC 5859
	optIPXE          = 175 // iPXE's encapsulated options
	optMSRoutes      = 249 // option 121 under Microsoft's number
	optPad           = 0
	optEnd           = 255

	agentCircuitID      = 1
	agentRemoteID       = 2
	agentLinkSelection  = 5  // RFC 3527
	agentServerOverride = 11 // RFC 5107
	agentSourcePort     = 19 // RFC 8357
)

// Codes is a set of option codes. The zero value is empty.
type Codes [4]uint64

// Add puts a code into the set.
func (c *Codes) Add(code uint8) { c[code>>6] |= 1 << (code & 63) }

// Has reports whether the code is in the set.
func (c *Codes) Has(code uint8) bool { return c[code>>6]&(1<<(code&63)) != 0 }

// Len returns how many codes are in the set.
func (c *Codes) Len() int {
	return bits.OnesCount64(c[0]) + bits.OnesCount64(c[1]) + bits.OnesCount64(c[2]) + bits.OnesCount64(c[3])
}

// All yields the codes in ascending order.
func (c Codes) All() iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		for code := range 256 {
			if c.Has(uint8(code)) && !yield(uint8(code)) {
				return
			}
		}
	}
}

// String returns the codes as text: "12, 15, 119".
func (c Codes) String() string {
	var b strings.Builder
	for code := range c.All() {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(int(code)))
	}
	return b.String()
}
