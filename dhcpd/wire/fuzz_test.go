package wire

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// FuzzParse: no bytes bring the parser down, nothing it says lies outside the packet, and what the codec can read, it
// reads alike.
func FuzzParse(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	r := new(Packet)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.Clone(data)[:len(data):len(data)]
		err := r.Parse(in)
		if !bytes.Equal(in, data) {
			t.Fatal("the packet was written to")
		}
		if err != nil {
			if _, ok := err.(ParseError); !ok {
				t.Fatalf("error %v is of another kind", err)
			}
		}
		checkMemory(t, r, in)
		if _, err := dhcpv4.FromBytes(data); err != nil {
			return // cut short: the codec refuses what is taken here
		}
		want := decode(t, data)
		if want == nil {
			return // likewise, in file or sname
		}
		if err != nil {
			checkRefusal(t, err, want)
			return
		}
		checkAgree(t, r, want)
	})
}

// checkMemory: every slice is of the packet, or of what was joined of it, and cannot be appended to in place.
func checkMemory(t *testing.T, r *Packet, data []byte) {
	t.Helper()
	for _, v := range [][]byte{r.ParamList, r.ClientID, r.UUID, r.AgentInfo, r.CircuitID, r.RemoteID, r.VendorClass, r.UserClass, r.hostname, r.fqdn} {
		if cap(v) != len(v) {
			t.Errorf("a value of %d bytes has room for %d", len(v), cap(v))
		}
		if len(v) > 0 && !bytes.Contains(data, v) && !bytes.Contains(r.parts.joined, v) {
			t.Errorf("% x is not of the packet", v)
		}
	}
	if len(r.parts.joined) > len(data) {
		t.Errorf("%d bytes joined out of %d", len(r.parts.joined), len(data))
	}
}

// checkRefusal: the codec's view of the packet holds the reason.
func checkRefusal(t *testing.T, err error, p *dhcpv4.DHCPv4) {
	t.Helper()
	ok := false
	switch err {
	case ErrNotRequest:
		ok = p.OpCode != dhcpv4.OpcodeBootRequest || len(p.Options[53]) != 1
	case ErrHardware:
		ok = p.HWType != 1 || len(p.ClientHWAddr) != 6 || p.ClientHWAddr[0]&1 != 0 || isZero(p.ClientHWAddr)
	case ErrHops:
		ok = p.HopCount > 16
	}
	if !ok {
		t.Errorf("refused with %v: %s", err, p.Summary())
	}
}

func checkAgree(t *testing.T, r *Packet, p *dhcpv4.DHCPv4) {
	t.Helper()
	if r.Type != MessageType(p.MessageType()) || r.XID != p.TransactionID || r.Flags != p.Flags ||
		!bytes.Equal(r.MAC[:], p.ClientHWAddr) {
		t.Errorf("header: got %+v, want %s", r, p.Summary())
	}
	for code, got := range map[uint8][]byte{
		12: r.hostname, 55: r.ParamList, 60: r.VendorClass, 61: r.ClientID, 77: r.UserClass, 81: r.fqdn, 82: r.AgentInfo, 97: r.UUID,
	} {
		if !bytes.Equal(got, p.Options[code]) {
			t.Errorf("option %d: got % x, want % x", code, got, p.Options[code])
		}
	}
	for name, a := range map[string]struct {
		got  netip.Addr
		want []byte
	}{
		"ciaddr": {r.CIAddr, p.ClientIPAddr}, "giaddr": {r.GIAddr, p.GatewayIPAddr}, "option 50": {r.Requested, p.Options[50]},
		"option 54": {r.ServerID, p.Options[54]}, "server override": {r.ServerIDOverride, agentOption(p, agentServerOverride)},
	} {
		valid := len(a.want) == 4 && !net.IP(a.want).IsUnspecified()
		if a.got.IsValid() != valid || valid && !bytes.Equal(a.got.AsSlice(), a.want) {
			t.Errorf("%s: got %s, want % x", name, a.got, a.want)
		}
	}
	if v := p.Options[57]; len(v) == 2 && r.MaxSize != int(binary.BigEndian.Uint16(v)) {
		t.Errorf("maximum size: got %d, want % x", r.MaxSize, v)
	}
	if v := p.Options[93]; len(v) >= 2 && (!r.HasArch || r.Arch != binary.BigEndian.Uint16(v)) {
		t.Errorf("architecture: got %d, want % x", r.Arch, v)
	}
}

// agentOption reads a sub-option of option 82, the last of its kind.
func agentOption(p *dhcpv4.DHCPv4, code uint8) (value []byte) {
	for c, v := range SubOptions(p.Options[82]) {
		if c == code {
			value = v
		}
	}
	return value
}

// FuzzAppend: any answer to any packet is a packet to the codec, within what the client takes, and says what was to be
// said.
func FuzzAppend(f *testing.F) {
	for i, s := range seeds(f) {
		f.Add(s, uint8(i), "http://10.0.0.1/x", "box", []byte("\xc8\x05custom\x79\x01"), uint32(3600))
		f.Add(s, uint8(i), "", "", bytes.Repeat([]byte("\xc9\xff"), 300), uint32(0))
	}
	r := new(Packet)
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, file, name string, custom []byte, lease uint32) {
		if r.Parse(data) != nil {
			return
		}
		a := Reply{
			Req: r, Type: [...]MessageType{Offer, Ack, Nak}[kind%3], ServerID: ip("10.0.0.1"), YIAddr: ip("10.0.0.9"), Lease: time.Duration(lease) * time.Second,
			Options: fuzzOptions(custom), Name: name, Domain: name, FQDN: name, BootFile: file, Message: name,
		}
		if kind&4 != 0 {
			a.VendorClass, a.VendorInfo, a.IPXE, a.NextServer = "PXEClient", "\x06\x01\x08\xff", "\xb0\x01\x01", ip("10.0.0.2")
		}
		prefix := []byte("prefix")
		out := a.Append(prefix)
		if !bytes.HasPrefix(out, prefix) {
			t.Fatal("what stood before is gone")
		}
		checkReply(t, &a, out[len(prefix):])
		again := a
		if !bytes.Equal(again.Append(bytes.Repeat([]byte{0xaa}, 2000)[:0]), out[len(prefix):]) {
			t.Error("not the same in a used buffer")
		}
	})
}

// fuzzOptions reads b as codes, lengths and values.
func fuzzOptions(b []byte) *Options {
	build := Builder{
		Subnet: netip.MustParsePrefix("10.0.0.0/24"), Router: ip("10.0.0.254"), DNS: []netip.Addr{ip("10.0.0.1")}, MTU: 1500,
		Search: []string{"c1.lab.test", "lab.test"}, NTP: []netip.Addr{ip("10.0.0.1")},
	}
	for len(b) >= 2 {
		n := min(3*int(b[1]), len(b)-2)
		c := lab.Option{Code: b[0], Data: b[2 : 2+n], Force: b[1]&1 != 0}
		if !serverOption(c.Code) {
			build.Custom = append(build.Custom, c)
		}
		b = b[2+n:]
	}
	return build.Build()
}

// serverOption reports whether the loader refuses a custom option of that number.
func serverOption(code uint8) bool {
	return code >= optRequestedIP && code <= optRebind || slices.Contains(
		[]uint8{optPad, optClientID, optRapidCommit, optFQDN, optAgentInfo, optArch, optNDI, optUUID, optEnd}, code)
}

func checkReply(t *testing.T, a *Reply, out []byte) {
	t.Helper()
	r := a.Req
	limit := min(max(r.MaxSize, 576), 1500) - udpOverhead
	agent := tlvSize(len(r.AgentInfo))
	if r.GIAddr.IsValid() && !a.Omitted.Has(82) && len(r.AgentInfo) > 0 {
		limit = min(limit+agent, maxMessage)
	}
	if len(out) > limit || len(out) < minMessage {
		t.Errorf("%d bytes, want %d to %d", len(out), minMessage, limit)
	}
	p := decode(t, out)
	if p == nil {
		t.Fatalf("file or sname holds no options: %x", out)
	}
	checkFields(t, out)
	if p.TransactionID != r.XID || !bytes.Equal(p.ClientHWAddr, r.MAC[:]) || p.MessageType() != dhcpv4.MessageType(a.Type) {
		t.Errorf("header of %s to %+v", p.Summary(), r)
	}
	if p.Options.Has(dhcpv4.OptionOptionOverload) && r.Booting() {
		t.Error("firmware got option 52")
	}
	want := map[uint8][]byte{54: {10, 0, 0, 1}, 61: r.ClientID, 82: r.AgentInfo, 56: []byte(a.Message)}
	if a.Type != Nak {
		for _, e := range a.Options.list {
			if e.when == sendAlways || r.Requests(e.code) && e.when != sendToSystemsIfRequested {
				want[e.code] = unTLV(e.tlv)
			}
		}
	}
	for code, v := range want {
		if !a.Omitted.Has(code) && !bytes.Equal(p.Options[code], v) {
			t.Errorf("option %d: got % x, want % x", code, p.Options[code], v)
		}
	}
	if codes := order(out); codes[0] != 53 || codes[1] != 54 || p.Options[82] != nil && codes[len(codes)-1] != 82 {
		t.Errorf("options in the order %d", codes)
	}
}

// unTLV joins the parts of one encoded option.
func unTLV(b []byte) (value []byte) {
	for len(b) >= 2 && b[0] != optPad {
		value = append(value, b[2:2+int(b[1])]...)
		b = b[2+int(b[1]):]
	}
	return value
}
