package interop

import "regexp"

// An explanation says why our answer differs from dnsmasq's, and why ours is right.
type explanation struct {
	facts     string // a regular expression that matches the whole name
	kind      string // "only we", "only they" or "both" send it; empty: any
	client    string // a regular expression; empty: anyone
	questions string // a regular expression; empty: any
	why       string
	source    string
}

func (e explanation) covers(d difference) bool {
	match := func(pattern, s string) bool {
		return pattern == "" || regexp.MustCompile("^(?:"+pattern+")$").MatchString(s)
	}
	return match(e.facts, d.fact) && (e.kind == "" || e.kind == d.kind()) && match(e.client, d.client) && match(e.questions, d.question)
}

const (
	boots   = "PXE .*|HTTP .*|iPXE"
	systems = "udhcpc|dhclient|networkd|Windows|Anaconda|relayed|small messages only|asks for .*"
)

// explanations are read in order: the first that covers a difference explains it.
func explanations() []explanation {
	return []explanation{
		{facts: "61", kind: "only we", why: "the client identifier is echoed, so that two clients with one MAC can mods their answers apart", source: "RFC 6842 section 3"},
		{facts: "93", kind: "only we", client: boots, why: "the architecture is echoed to firmware", source: "RFC 4578 section 2.1"},
		{facts: "94", kind: "only we", client: boots, why: "the network interface identifier is echoed to firmware", source: "RFC 4578 section 2.2"},
		{facts: "97", kind: "only we", client: boots, why: "the machine identifier is echoed to firmware; some drops answers without it", source: "PXE 2.1 section 2.2.1 table 2-1; RFC 4578 section 2.3"},
		{facts: "56", kind: "both", questions: "a wrong address", why: "each server has its own texts", source: "RFC 2131 section 4.3.2"},
		{facts: "flags", kind: "both", questions: "a wrong address", why: "dnsmasq sets the broadcast flag in a NAK to a client too; it is for relays, and both servers broadcast", source: "RFC 2131 section 4.3.2"},
		{facts: "51", kind: "only they", questions: "INFORM", why: "an answer to INFORM must not carry a lease time", source: "RFC 2131 section 4.3.5"},
		{facts: "siaddr", kind: "both", client: systems + "|HTTP .*", why: "a client that does not boot by TFTP needs no next server; dnsmasq always writes its own address", source: "RFC 2131 section 2"},
		{facts: "60|43", kind: "only we", client: "PXE .*", why: "with PXEClient and discovery control 8 UEFI ranks the offer highest and boots its file", source: "PXE 2.1 section 2.2; EDK2 PxeBcDhcp4.c"},
		{facts: "66", kind: "only we", client: "PXE .*|iPXE", why: "option 66 is for firmware that does not read siaddr", source: "RFC 2132 section 9.4"},
		{facts: "67", kind: "both", client: boots, why: "dnsmasq ends the name with a NUL inside the option; ours is followed by a pad, which suits clients that read a C string and those that use the length", source: "RFC 2132 section 9.5"},
		{facts: "file", kind: "only we", client: boots, why: "dnsmasq moves the name to option 67 if the client requests it, and leaves the field empty; shim reads only the field", source: "RFC 2131 section 4.1; shim netboot.c"},
		{facts: "150", kind: "only we", why: "options of the lab file about booting are sent unrequested: firmware and phones read more than they request", source: "RFC 5859"},
		{facts: "175", kind: "both", client: "iPXE", why: "dnsmasq ends encapsulated options with 255; the length is enough", source: "RFC 2132 section 8.4"},
		{facts: "28", kind: "only they", client: "iPXE", why: "iPXE derives the broadcast address from the mask and does not request it", source: "RFC 2131 section 4.3.1"},
		{facts: "12", kind: "only we", client: systems, why: "hosts get their name unrequested: installers that do not request it call the machine localhost", source: "RFC 2132 section 3.14"},
		{facts: "121", kind: "only we", client: systems, why: "operating systems get routes unrequested: some clients use them but do not request them by default, others ignore them", source: "RFC 3442"},
	}
}
