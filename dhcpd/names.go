package dhcpd

import "github.com/bootlab/bootlab/dhcpd/wire"

// Keys of log attributes.
const (
	keyMAC     = "mac"
	keyAddr    = "addr"
	keyErr     = "err"
	keyDur     = "dur"
	keyIface   = "iface"
	keyNetwork = "network"
)

// Names of metrics.
const (
	MetricReceived = "bootlab_dhcpd_packets_received_total"
	MetricSent     = "bootlab_dhcpd_packets_sent_total"
	MetricDropped  = "bootlab_dhcpd_packets_dropped_total"
	MetricCommit   = "bootlab_dhcpd_commit_duration_seconds"
	MetricLeases   = "bootlab_dhcpd_leases"
	MetricFree     = "bootlab_dhcpd_pool_free_addresses"
	MetricProbes   = "bootlab_dhcpd_probes_total"
	MetricRogue    = "bootlab_dhcpd_rogue_replies_total"
	MetricTrunc    = "bootlab_dhcpd_options_dropped_total"
	MetricRA       = "bootlab_dhcpd_router_advertisements_total"
)

// A dropReason says why a packet got no answer. The set is closed: it is a label.
type dropReason uint8

const (
	dropNone        dropReason = iota
	dropMalformed              // not a DHCP packet
	dropNotRequest             // a reply, or no message type (BOOTP)
	dropHardware               // not an Ethernet address
	dropHops                   // RFC 1542 section 4.1.1: more than 16 relays
	dropNoNetwork              // from a subnet that the lab does not know
	dropOff                    // the network is silent by configuration, or to this machine
	dropNoServer               // the appliance has no address in this network yet
	dropUnknownType            // a message that a server does not answer
	dropRefused                // no address for this machine
	dropLimited                // a newcomer beyond the ration of a pool that runs short, or one who declines everything
	dropNotOurs                // meant for another server
	dropNotBoot                // proxy mode: not a machine that boots from here
	dropBusy                   // the queue of commits is full
	dropCommit                 // the commit failed: silence, the client asks again
	dropSend                   // the kernel refused the reply
	dropPanic                  // our bug, contained
	dropReasons
)

// String returns the value of the label.
func (r dropReason) String() string {
	return [dropReasons]string{
		"none", "malformed", "not_request", "hardware", "hops", "no_network", "off", "no_server", "unknown_type", "refused",
		"limited", "not_ours", "not_boot", "busy", "commit", "send", "panic",
	}[r]
}

// dropOf returns the reason for a packet that cannot be read.
func dropOf(err error) dropReason {
	switch err {
	case wire.ErrNotRequest:
		return dropNotRequest
	case wire.ErrHardware:
		return dropHardware
	case wire.ErrHops:
		return dropHops
	}
	return dropMalformed
}
