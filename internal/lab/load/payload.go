package load

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// maxOptionData is the longest value of an option: in parts of 255 bytes (RFC 3396) it leaves space for the rest of a message
// of 1472 bytes.
const maxOptionData = 900

// A payload is the data of a DHCP option. Text is read by its form: addresses separated by commas are four bytes each;
// "hex:", "text:", "u8:", "u16:" and "u32:" say what follows. Anything else is an error, as its width is unknown.
type payload []byte

func (v *payload) parse(s string) error {
	form, rest, tagged := strings.Cut(s, ":")
	var err error
	switch {
	case !tagged:
		err = v.addresses(s)
	case form == "hex":
		*v, err = hex.DecodeString(strings.NewReplacer(":", "", " ", "").Replace(rest))
	case form == "text":
		*v = payload(rest)
	case form == "u8" || form == "u16" || form == "u32":
		err = v.number(form, rest)
	default:
		err = fmt.Errorf("form %q", form)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%q is not the value of an option: want addresses, hex:0104c0a81001, text:%s or u8:, u16:, u32: with a number", s, s)
	case len(*v) == 0 || len(*v) > maxOptionData:
		return fmt.Errorf("%.60q has %d bytes: want 1 to %d", s, len(*v), maxOptionData)
	}
	return nil
}

func (payload) spec() spec {
	return what("value of an option, such as 192.168.16.1, hex:0104c0a81001, text:word or u16:1400", `^([0-9., ]+|hex:[0-9A-Fa-f: ]+|text:[\s\S]+|u(8|16|32):[0-9]+)$`)
}

func (v *payload) addresses(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		var a addr4
		if err := a.parse(strings.TrimSpace(part)); err != nil {
			return err
		}
		*v = append(*v, a.AsSlice()...)
	}
	return nil
}

func (v *payload) number(form, digits string) error {
	bits, err := strconv.Atoi(form[1:])
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(digits, 10, bits)
	if err != nil {
		return err
	}
	for shift := bits - 8; shift >= 0; shift -= 8 {
		*v = append(*v, byte(n>>shift))
	}
	return nil
}
