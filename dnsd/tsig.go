package dnsd

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// The errors of a TSIG record (RFC 8945 section 3).
const (
	badSig   rcode = 16
	badKey   rcode = 17
	badTime  rcode = 18
	badTrunc rcode = 22
)

const (
	classANY  = 255
	tsigFixed = 16  // octets of a TSIG record's data beside algorithm, MAC and other data
	minMAC    = 10  // octets of a truncated MAC, RFC 8945 section 5.2.2.1
	tsigFudge = 300 // seconds that clocks may differ in what we send
)

var errKeyFile = errors.New("want a secret in base64, or a key statement as tsig-keygen writes it")

// tsigHashes are the algorithms of keys (RFC 8945 section 6). HMAC-MD5 is left out: nothing needs it any more.
var tsigHashes = map[string]func() hash.Hash{
	"hmac-sha1": sha1.New, "hmac-sha224": sha256.New224, "hmac-sha256": sha256.New, "hmac-sha384": sha512.New384, "hmac-sha512": sha512.New,
}

// A tsigKey is a secret shared with another server or client.
type tsigKey struct {
	name      []byte // in wire form, lower case
	text      string // with a final dot
	algorithm []byte // in wire form
	hash      func() hash.Hash
	secret    []byte
}

// addKeys reads the keys. One whose file cannot be read is unknown: who signs with it is refused.
func (b *builder) addKeys(keys []lab.TSIGKey, readFile ReadFile) {
	for _, k := range keys {
		at := "dns.keys." + strings.TrimSuffix(k.Name, ".") + ".secret_file"
		b.t.files = append(b.t.files, k.SecretFile)
		if readFile == nil {
			continue
		}
		text, err := readFile(k.SecretFile, "")
		var key tsigKey
		if err == nil {
			key, err = parseKey(k, string(text))
		}
		if err != nil {
			b.t.warnings.Addf(k.Pos, at, "requests with the key %s are refused: %v", k.Name, err)
			continue
		}
		b.t.keys = append(b.t.keys, key)
	}
}

// parseKey reads what a key's file holds.
func parseKey(k lab.TSIGKey, text string) (tsigKey, error) {
	algorithm, secret := k.Algorithm, strings.TrimSpace(text)
	if f := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\r\n{};\"", c) }); len(f) > 1 {
		i, j := slices.Index(f, "algorithm"), slices.Index(f, "secret")
		if f[0] != "key" || i < 0 || j < 0 || i+1 >= len(f) || j+1 >= len(f) {
			return tsigKey{}, errKeyFile
		}
		if name := strings.ToLower(strings.TrimSuffix(f[1], ".")) + "."; name != k.Name {
			return tsigKey{}, fmt.Errorf("%s holds the key %s", k.SecretFile, name)
		}
		algorithm, secret = strings.ToLower(f[i+1]), f[j+1]
	}
	key := tsigKey{text: k.Name, hash: tsigHashes[algorithm]}
	if key.hash == nil {
		return tsigKey{}, fmt.Errorf("%s: %q is not an algorithm that is supported: want hmac-sha256", k.SecretFile, algorithm)
	}
	var err error
	if key.secret, err = base64.StdEncoding.DecodeString(secret); err != nil || len(key.secret) == 0 {
		return tsigKey{}, fmt.Errorf("%s: %w", k.SecretFile, errKeyFile)
	}
	if key.name, err = appendName(nil, k.Name); err != nil {
		return tsigKey{}, err
	}
	key.algorithm, err = appendName(nil, algorithm)
	return key, err
}

// keyNamed returns a key by its name as text, or nil.
func (t *Table) keyNamed(text string) *tsigKey {
	for i := range t.keys {
		if t.keys[i].text == text {
			return &t.keys[i]
		}
	}
	return nil
}

// A signature is the TSIG record of a request, and what its reply is signed with.
type signature struct {
	key    *tsigKey // nil: the request's is not known, or its MAC is wrong, so that the reply is not signed
	record []byte   // the request's record up to its data: name, type, class and TTL
	alg    []byte   // as the request names it
	mac    []byte   // of the request, then of the message that was sent last
	time   uint64   // of the request
	fudge  uint16
	id     uint16 // that the MAC was made with
	err    rcode
	chain  bool // a message of the same reply was sent before
}

// parseTSIG reads the TSIG record at an offset of a message.
func parseTSIG(b []byte, at int) (s *signature, other []byte, ok bool) {
	var owner, alg name
	n, err := owner.parse(b[at:])
	h, fine := parseHeader(b, at)
	if err != nil || !fine || h.class != classANY || h.ttl != 0 {
		return nil, nil, false
	}
	data := b[h.data:h.end]
	m, err := alg.parse(data)
	if err != nil || len(data) < m+tsigFixed {
		return nil, nil, false
	}
	s = &signature{record: append(bytes.Clone(owner.bytes()), b[at+n:at+n+8]...), alg: bytes.Clone(alg.bytes())}
	data = data[m:]
	s.time = uint64(binary.BigEndian.Uint16(data))<<32 | uint64(binary.BigEndian.Uint32(data[2:]))
	s.fudge = binary.BigEndian.Uint16(data[6:])
	macLen := int(binary.BigEndian.Uint16(data[8:]))
	if len(data) < macLen+tsigFixed {
		return nil, nil, false
	}
	s.mac = bytes.Clone(data[10 : 10+macLen])
	data = data[10+macLen:]
	s.id = binary.BigEndian.Uint16(data)
	s.err = rcode(binary.BigEndian.Uint16(data[2:]))
	other = data[6:]
	return s, other, int(binary.BigEndian.Uint16(data[4:])) == len(other)
}

// verify checks the TSIG record at an offset of a message (RFC 8945 section 5.2). before is the MAC of the request if the message is a
// reply. The code is what a reply to it has; the signature says why, and signs it.
func (t *Table) verify(b []byte, at int, before []byte, now time.Time) (*signature, rcode) {
	s, other, ok := parseTSIG(b, at)
	if !ok {
		return nil, formErr
	}
	claimed := s.err
	s.err = badKey
	for i := range t.keys {
		if k := &t.keys[i]; bytes.HasPrefix(s.record, k.name) && len(s.record) == len(k.name)+8 && bytes.Equal(k.algorithm, s.alg) {
			s.key, s.err = k, noError
		}
	}
	if s.key == nil {
		return s, notAuth
	}
	size := s.key.hash().Size()
	if len(s.mac) > size || len(s.mac) < max(minMAC, size/2) {
		return nil, formErr
	}
	msg := bytes.Clone(b[:at])
	binary.BigEndian.PutUint16(msg, s.id)
	binary.BigEndian.PutUint16(msg[10:], binary.BigEndian.Uint16(msg[10:])-1)
	want := s.sum(before, msg, s.time, claimed, other)
	switch difference := now.Unix() - int64(s.time); {
	case !hmac.Equal(s.mac, want[:len(s.mac)]):
		s.key, s.err = nil, badSig
	case difference > int64(s.fudge) || -difference > int64(s.fudge):
		s.err = badTime
	case len(s.mac) < size:
		s.err = badTrunc // allowed by the RFC, and not in use
	default:
		return s, noError
	}
	return s, notAuth
}

// why says what is wrong with a request's TSIG record.
func (s *signature) why() string {
	switch s.err {
	case badKey:
		return "the key is not in dns.keys with this algorithm (BADKEY)"
	case badSig:
		return "the secret is another one (BADSIG)"
	case badTime:
		return "the clocks differ (BADTIME)"
	}
	return "its MAC is too short (BADTRUNC)"
}

// sum returns the MAC of a message and the variables of its TSIG record (RFC 8945 section 4.3).
func (s *signature) sum(before, msg []byte, at uint64, code rcode, other []byte) []byte {
	h := hmac.New(s.key.hash, s.key.secret)
	if before != nil {
		_, _ = h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(before))))
		_, _ = h.Write(before)
	}
	_, _ = h.Write(msg)
	var v []byte
	if !s.chain {
		v = append(v, s.key.name...)
		v = append(v, 0, classANY, 0, 0, 0, 0)
		v = append(v, s.key.algorithm...)
	}
	v = appendTime(v, at)
	v = binary.BigEndian.AppendUint16(v, s.fudge)
	if !s.chain {
		v = binary.BigEndian.AppendUint16(v, uint16(code))
		v = binary.BigEndian.AppendUint16(v, uint16(len(other)))
		v = append(v, other...)
	}
	_, _ = h.Write(v)
	return h.Sum(nil)
}

func appendTime(b []byte, at uint64) []byte {
	return append(b, byte(at>>40), byte(at>>32), byte(at>>24), byte(at>>16), byte(at>>8), byte(at))
}

// size is how many octets the TSIG record of a reply takes.
func (s *signature) size() int {
	n := len(s.record) + 2 + len(s.alg) + tsigFixed + 6
	if s.key != nil {
		n += s.key.hash().Size()
	}
	return n
}

// sign appends the TSIG record to a complete reply.
func (s *signature) sign(msg []byte, now time.Time) []byte {
	at, other := uint64(now.Unix()), []byte(nil)
	if s.err == badTime {
		at, other = s.time, appendTime(nil, at) // RFC 8945 section 5.2.3
	}
	var mac []byte
	if s.key != nil {
		mac = s.sum(s.mac, msg, at, s.err, other)
	}
	id := binary.BigEndian.Uint16(msg)
	s.mac, s.chain = mac, true
	msg = append(msg, s.record...)
	msg = binary.BigEndian.AppendUint16(msg, uint16(len(s.alg)+tsigFixed+len(mac)+len(other)))
	msg = append(msg, s.alg...)
	msg = appendTime(msg, at)
	msg = binary.BigEndian.AppendUint16(msg, s.fudge)
	msg = binary.BigEndian.AppendUint16(msg, uint16(len(mac)))
	msg = append(msg, mac...)
	msg = binary.BigEndian.AppendUint16(msg, id)
	msg = binary.BigEndian.AppendUint16(msg, uint16(s.err))
	msg = binary.BigEndian.AppendUint16(msg, uint16(len(other)))
	msg = append(msg, other...)
	binary.BigEndian.PutUint16(msg[10:], binary.BigEndian.Uint16(msg[10:])+1)
	return msg
}

// signedWith returns a signature for a message of our own.
func signedWith(k *tsigKey) *signature {
	record := append(bytes.Clone(k.name), 0, typeTSIG, 0, classANY, 0, 0, 0, 0)
	return &signature{key: k, record: record, alg: k.algorithm, fudge: tsigFudge}
}

// by returns the name of the key that a request is signed with, or "".
func (s *signature) by() string {
	if s == nil || s.key == nil || s.err != noError {
		return ""
	}
	return s.key.text
}
