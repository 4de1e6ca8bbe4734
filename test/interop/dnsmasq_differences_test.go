package interop

import "regexp"

// An explanation is why our answer differs from dnsmasq's, and why ours is right.
type explanation struct {
	facts     string // a regular expression that takes the whole name
	kind      string // "only we", "only they" or "both" say it; empty: any
	who       string // a regular expression; empty: anyone
	questions string // a regular expression; empty: any
	why       string
	source    string
}

func (e explanation) covers(d difference) bool {
	match := func(pattern, s string) bool {
		return pattern == "" || regexp.MustCompile("^(?:"+pattern+")$").MatchString(s)
	}
	return match(e.facts, d.fact) && (e.kind == "" || e.kind == d.kind()) && match(e.who, d.who) && match(e.questions, d.question)
}

const (
	boots   = "PXE .*|HTTP .*|iPXE"
	systems = "udhcpc|dhclient|networkd|Windows|Anaconda|relayed|small messages only|asks for .*"
)

// explanations are read in order: the first that covers a difference explains it.
func explanations() []explanation {
	return []explanation{
		{facts: "61", kind: "only we", why: "the client identifier is echoed, so that two clients with one MAC can tell their answers apart", source: "RFC 6842 section 3"},
		{facts: "93", kind: "only we", who: boots, why: "what the client said of its architecture is said back to firmware", source: "RFC 4578 section 2.1"},
		{facts: "94", kind: "only we", who: boots, why: "and of its network interface", source: "RFC 4578 section 2.2"},
		{facts: "97", kind: "only we", who: boots, why: "the machine identifier is echoed to firmware; some drops answers without it", source: "PXE 2.1 section 2.2.1 table 2-1; RFC 4578 section 2.3"},
		{facts: "56", kind: "both", questions: "a wrong address", why: "the words of a refusal are each server's own", source: "RFC 2131 section 4.3.2"},
		{facts: "flags", kind: "both", questions: "a wrong address", why: "dnsmasq raises the broadcast flag in a NAK on the wire, too; it is for relays, and both send to everybody", source: "RFC 2131 section 4.3.2"},
		{facts: "51", kind: "only they", questions: "INFORM", why: "an answer to INFORM must not carry a lease time", source: "RFC 2131 section 4.3.5"},
		{facts: "siaddr", kind: "both", who: systems + "|HTTP .*", why: "there is no next server for who does not boot from one; dnsmasq writes its own address whether or not there is a TFTP server", source: "RFC 2131 section 2"},
		{facts: "60|43", kind: "only we", who: "PXE .*", why: "with PXEClient and discovery control 8 UEFI takes the offer at its highest rank and boots the file in it", source: "PXE 2.1 section 2.2; EDK2 PxeBcDhcp4.c"},
		{facts: "66", kind: "only we", who: "PXE .*|iPXE", why: "the TFTP server is told by name, too, for firmware that reads only option 66", source: "RFC 2132 section 9.4"},
		{facts: "67", kind: "both", who: boots, why: "dnsmasq ends the name with a NUL inside the option; ours is followed by a pad, which is right for who reads a C string and for who counts", source: "RFC 2132 section 9.5"},
		{facts: "file", kind: "only we", who: boots, why: "dnsmasq moves the name to option 67 for who asks for that and leaves the field empty; shim finds its second stage by the field alone", source: "RFC 2131 section 4.1; shim netboot.c"},
		{facts: "150", kind: "only we", why: "what an author writes about booting goes out unasked: firmware and phones read more than they ask for", source: "RFC 5859"},
		{facts: "175", kind: "both", who: "iPXE", why: "dnsmasq ends what it encapsulates with 255; the length says where it ends", source: "RFC 2132 section 8.4"},
		{facts: "28", kind: "only they", who: "iPXE", why: "iPXE works its broadcast address out from the mask and does not ask for it", source: "RFC 2131 section 4.3.1"},
		{facts: "12", kind: "only we", who: systems, why: "a machine of the lab is told its name unasked: installers that do not ask end up as localhost", source: "RFC 2132 section 3.14"},
		{facts: "121", kind: "only we", who: systems, why: "routes are told to systems unasked: some clients can use them and do not ask by default, others pass them over", source: "RFC 3442"},
	}
}
