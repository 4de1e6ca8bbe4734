package importer

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A definition is an option whose encoding a file says: option-def of Kea, and option NAME code of ISC dhcpd.
type definition struct {
	code   uint8
	fields *fields // nil: that of the standard
}

// fields are how the values of an option are encoded, one after another.
type fields struct {
	kinds []kind
	array bool // the last one repeats
	text  string
}

// setting sets an option: one that the file defines has the bytes that it says.
func (d *draft) setting(o setting, t target) {
	if o.fields == nil || optionKinds[o.code] != kindUnknown || o.code == 119 || len(o.words) == 0 {
		d.option(o.at, t, o.code, o.words, o.force)
		return
	}
	value, err := o.fields.encode(o.words)
	if err != nil {
		d.note(o.at, "option %d is left out: %v", o.code, err)
		return
	}
	t.scope.set(o.code, option{o.at, value, o.force})
}

// encode returns a value in the notation of the lab file.
func (f *fields) encode(words []string) (string, error) {
	switch {
	case slices.Contains(f.kinds, kindUnknown):
		return "", fmt.Errorf("type %s is not known here: want its bytes, hex:…", f.text)
	case len(f.kinds) == 1 && (!f.array || f.kinds[0] == kindAddrs || f.kinds[0] == kindDomains):
		return encodeAs(f.kinds[0], words)
	}
	var b []byte
	for i, w := range words {
		if i >= len(f.kinds) && !f.array {
			return "", fmt.Errorf("there are %d values: want %d", len(words), len(f.kinds))
		}
		value, err := encodeAs(f.kinds[min(i, len(f.kinds)-1)], []string{w})
		if err != nil {
			return "", err
		}
		b = append(b, valueBytes(value)...)
	}
	if len(words) < len(f.kinds) {
		return "", fmt.Errorf("there are %d values: want %d", len(words), len(f.kinds))
	}
	return "hex:" + hex.EncodeToString(b), nil
}

// valueBytes returns the bytes of one value that encodeAs has returned.
func valueBytes(value string) []byte {
	kind, text, ok := strings.Cut(value, ":")
	if !ok {
		return netip.MustParseAddr(value).AsSlice()
	}
	var n uint32
	_, _ = fmt.Sscan(text, &n) // 0 of those that are no numbers
	switch kind {
	case "u8":
		return []byte{byte(n)}
	case "u16":
		return binary.BigEndian.AppendUint16(nil, uint16(n))
	case "u32":
		return binary.BigEndian.AppendUint32(nil, n)
	case "hex":
		b, _ := hex.DecodeString(text) // encodeAs has encoded it
		return b
	}
	return []byte(text)
}

// keaKinds are the types of option-def.
var keaKinds = map[string]kind{
	"uint8": kindU8, "uint16": kindU16, "uint32": kindU32, "int8": kindU8, "int16": kindU16, "int32": kindU32, "boolean": kindBool,
	"string": kindText, "binary": kindBytes, "ipv4-address": kindAddrs, "ipv6-address": kindAddr6, "fqdn": kindDomains,
}

func keaDefinition(code uint8, def *node) definition {
	text := def.value("type")
	f := &fields{array: def.value("array") == "true", text: text}
	if text == "record" {
		text = def.value("record-types")
	}
	for name := range strings.SplitSeq(text, ",") {
		f.kinds = append(f.kinds, keaKinds[strings.TrimSpace(name)])
	}
	return definition{code, f}
}

// definition returns the definition of an option of option-data, by its name or its number.
func (k *kea) definition(o *node) (definition, bool) {
	name := o.value("name")
	if def, ok := k.defined[name]; ok {
		return def, true
	}
	code, ok := optionCode(o.value("code"))
	if !ok {
		code, ok = optionCode(name)
	}
	for _, def := range k.defined {
		if ok && def.code == code {
			return def, true
		}
	}
	return definition{code: code}, ok
}

// keaSetting returns the value of an option. With csv-format: false it is in bytes, and so is one that nothing defines.
func (def definition) keaSetting(o *node) setting {
	s := setting{at: o.at, code: def.code, fields: def.fields, force: o.value("always-send") == "true"}
	data := o.value("data")
	csv := o.value("csv-format")
	known := def.fields != nil || optionKinds[def.code] != kindUnknown || networkKeys[def.code] != "" || def.code == 121
	if csv == "false" || csv != "true" && !known {
		if b, err := keaBytes(data); err == nil {
			s.words, s.fields = bytesAsWords(def.code, b)
			return s
		} else if csv == "false" {
			s.words = []string{data}
			return s
		}
	}
	if def.fields != nil && !def.fields.array && len(def.fields.kinds) == 1 && def.fields.kinds[0] == kindText {
		s.words = []string{data}
		return s
	}
	for w := range strings.SplitSeq(strings.ReplaceAll(data, " - ", ","), ",") {
		if w = strings.TrimSpace(w); w != "" {
			s.words = append(s.words, w)
		}
	}
	return s
}

// bytesAsWords returns what an option of these bytes is set from: its words where it has a key of its own, else the bytes.
func bytesAsWords(code uint8, b []byte) (words []string, f *fields) {
	routes, err := routeBytes(b)
	switch {
	case code == 121 && err == nil:
		return routes, nil
	case optionKinds[code] == kindAddrs && len(b)%4 == 0:
		for four := range slices.Chunk(b, 4) {
			words = append(words, netip.AddrFrom4([4]byte(four)).String())
		}
		return words, nil
	case optionKinds[code] == kindText:
		return []string{string(b)}, nil
	case slices.Contains([]kind{kindU8, kindU16, kindU32}, optionKinds[code]) && len(b) <= 4:
		return []string{fmt.Sprint(binary.BigEndian.Uint32(append(make([]byte, 4-len(b)), b...)))}, nil
	}
	return []string{hex.EncodeToString(b)}, &fields{kinds: []kind{kindBytes}}
}

// keaBytes reads bytes as Kea writes them: 0A0B, 0x0A0B, "0A 0B", 0a:0b, and 'AB' for its characters.
func keaBytes(data string) ([]byte, error) {
	if len(data) > 2 && data[0] == '\'' && data[len(data)-1] == '\'' {
		return []byte(data[1 : len(data)-1]), nil
	}
	b, ok := hexBytes(strings.ReplaceAll(strings.TrimSpace(data), " ", ""))
	if !ok {
		return nil, errors.New("want bytes such as 0A0B")
	}
	return b, nil
}

// dhcpdDefinition reads the type of an option (dhcp-options(5)): = TYPE, = array of TYPE, or = { TYPE, TYPE }.
func dhcpdDefinition(code uint8, words []string) definition {
	text := strings.TrimSpace(strings.TrimPrefix(strings.Join(words, " "), "="))
	f := &fields{text: text}
	text, f.array = strings.CutPrefix(text, "array of ")
	for w := strings.Fields(text); len(w) > 0; {
		k, n := dhcpdKind(w)
		f.kinds = append(f.kinds, k)
		if k == kindUnknown {
			break
		}
		w = w[n:]
	}
	if len(f.kinds) == 0 {
		f.kinds = []kind{kindUnknown}
	}
	return definition{code, f}
}

// dhcpdKind returns the type that words begin with, and how many it takes.
func dhcpdKind(w []string) (kind, int) {
	switch w[0] {
	case "boolean", "flag":
		return kindBool, 1
	case "text":
		return kindText, 1
	case "string":
		return kindBytesOrText, 1
	case "ip-address":
		return kindAddrs, 1
	case "ip6-address":
		return kindAddr6, 1
	case "domain-name", "domain-list":
		return kindDomains, 1
	case "signed", "unsigned":
		if len(w) > 1 {
			k, n := dhcpdKind(w[1:])
			return k, n + 1
		}
	case "integer":
		if len(w) > 1 {
			return map[string]kind{"8": kindU8, "16": kindU16, "32": kindU32}[w[1]], 2
		}
	}
	return kindUnknown, 1
}
