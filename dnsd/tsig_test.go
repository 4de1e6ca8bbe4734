package dnsd

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

const (
	testKey    = "ns2.test."
	testSecret = "pRP5FapFoJ95JEL06sv4PQ=="
)

// keyFiles are files of keys as people make them.
func keyFiles(name, _ string) ([]byte, error) {
	text, ok := map[string]string{
		"/plain":  testSecret + "\n",
		"/clause": "key \"ns2.test\" {\n\talgorithm hmac-sha512;\n\tsecret \"" + testSecret + "\";\n};\n",
		"/other":  "key \"other\" { algorithm hmac-sha256; secret \"" + testSecret + "\"; };",
		"/md5":    "key \"ns2.test\" { algorithm hmac-md5; secret \"" + testSecret + "\"; };",
		"/bad":    "not base64!",
		"/empty":  "",
	}[name]
	if !ok {
		return nil, errNoFile
	}
	return []byte(text), nil
}

// keyedLab is a lab whose zone is transferred to who signs with testKey.
func keyedLab(file string) *lab.Lab {
	l := &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "www A 192.0.2.1")}}
	l.DNS.Keys = []lab.TSIGKey{{Name: testKey, Algorithm: "hmac-sha256", SecretFile: file}}
	l.DNS.Transfer = []lab.Access{{Key: testKey}, {From: netip.MustParsePrefix("192.0.2.9/32")}}
	return l
}

func compileFiles(t testing.TB, l *lab.Lab) *Table {
	t.Helper()
	table, err := Compile(l, keyFiles)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/plain": "", "/clause": "", "/other": "/other holds the key other.", "/md5": `"hmac-md5" is not an algorithm that is supported`,
		"/bad": "want a secret in base64", "/empty": "want a secret in base64", "/missing": "no such file",
	} {
		table := compileFiles(t, keyedLab(file))
		text := fmt.Sprint(table.Warnings())
		if want == "" && (len(table.keys) != 1 || len(table.Warnings()) != 0) || want != "" && (len(table.keys) != 0 || !strings.Contains(text, want)) {
			t.Errorf("%s: %d keys, warnings %s, want %q", file, len(table.keys), text, want)
		}
	}
}

// TestTSIG asks with good and bad signatures (RFC 8945 section 5.2).
func TestTSIG(t *testing.T) {
	t.Parallel()
	s := newServer(t, compileFiles(t, keyedLab("/plain")), nil)
	ap := serve(t, s, "127.0.0.1")
	wrong := base64.StdEncoding.EncodeToString([]byte("another secret"))
	now := time.Now().Unix()
	for _, tt := range []struct {
		name, key, algorithm, secret string
		at                           int64
		change                       func([]byte) []byte
		rcode, tsig                  int
		signed                       bool
	}{
		{name: "right", rcode: dns.RcodeSuccess, signed: true},
		{name: "upper case", key: "NS2.Test.", rcode: dns.RcodeSuccess, signed: true},
		{name: "unknown key", key: "ns3.test.", rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadKey},
		{name: "another algorithm", algorithm: dns.HmacSHA512, rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadKey},
		{name: "wrong secret", secret: wrong, rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadSig},
		{name: "late", at: now - 400, rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadTime, signed: true},
		{name: "early", at: now + 400, rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadTime, signed: true},
		{name: "within the fudge", at: now - 200, rcode: dns.RcodeSuccess, signed: true},
		{name: "truncated", change: cutMAC(16), rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadTrunc, signed: true},
		{name: "truncated too far", change: cutMAC(15), rcode: dns.RcodeFormatError},
		{name: "too long", change: cutMAC(40), rcode: dns.RcodeFormatError},
		{name: "not last", change: func(b []byte) []byte {
			b[11]++
			return append(b, 0, 0, typeTXT, 0, classIN, 0, 0, 0, 0, 0, 0)
		}, rcode: dns.RcodeFormatError},
		{name: "changed", change: func(b []byte) []byte { b[13] ^= 1; return b }, rcode: dns.RcodeNotAuth, tsig: dns.RcodeBadSig},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA)
			m.SetTsig(or(tt.key, testKey), or(tt.algorithm, dns.HmacSHA256), 300, max(tt.at, (1-min(tt.at, 1))*now))
			packed, mac, err := dns.TsigGenerate(m, or(tt.secret, testSecret), "", false)
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				packed = tt.change(packed)
			}
			conn, err := dns.Dial("udp", ap.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(packed); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			buf := make([]byte, 4096)
			n, err := conn.Conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			reply := new(dns.Msg)
			if err := reply.Unpack(buf[:n]); err != nil {
				t.Fatal(err)
			}
			sig := reply.IsTsig()
			if reply.Rcode != tt.rcode || sig == nil && (tt.tsig != 0 || tt.signed) || sig != nil && int(sig.Error) != tt.tsig {
				t.Fatalf("code %s, TSIG %v; want %s, error %d", dns.RcodeToString[reply.Rcode], sig, dns.RcodeToString[tt.rcode], tt.tsig)
			}
			if !tt.signed {
				if sig != nil && sig.MACSize != 0 {
					t.Error("the reply is signed")
				}
				return
			}
			if tt.change != nil {
				mac = mac[:32]
			}
			if tt.rcode == dns.RcodeSuccess { // the library does not look at others
				if err := dns.TsigVerify(buf[:n], testSecret, mac, false); err != nil {
					t.Errorf("the reply's signature: %v", err)
				}
				return
			}
			var q query
			before, _ := hex.DecodeString(mac)
			if q.read(buf[:n]) != noError {
				t.Fatal("the reply cannot be read")
			}
			if got, _ := s.deps.Table().verify(buf[:n], q.tsig, before, time.Now()); got == nil || got.key == nil {
				t.Errorf("the reply's signature is wrong: %+v", got)
			}
		})
	}
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// cutMAC makes the MAC of a message that long.
func cutMAC(n int) func([]byte) []byte {
	return func(b []byte) []byte {
		end := len(b) - 6 // original ID, error, length of other data
		mac := append(append([]byte{}, b[end-32:end]...), make([]byte, 32)...)[:n]
		out := append(append([]byte{}, b[:end-32]...), mac...)
		out = append(out, b[end:]...)
		sizeAt := end - 32 - 2
		binary.BigEndian.PutUint16(out[sizeAt:], uint16(n))
		alg := len("\x0bhmac-sha256\x00")
		length := sizeAt - 8 - alg - 2
		binary.BigEndian.PutUint16(out[length:], uint16(alg+16+n))
		return out
	}
}

// TestTransferByKey: a zone is transferred to who signs with its key, and every message of it is signed.
func TestTransferByKey(t *testing.T) {
	t.Parallel()
	l := keyedLab("/clause")
	for i := range 3000 {
		l.Zones[0].Lines = append(l.Zones[0].Lines, lab.Line{Text: fmt.Sprintf("h%d A 192.0.2.1", i)})
	}
	log := &logBuffer{}
	s := newServer(t, compileFiles(t, l), nil)
	s.log = slog.New(slog.NewTextHandler(log, nil))
	ap := serve(t, s, "127.0.0.1")
	for _, tt := range []struct{ name, key, algorithm, secret, zone, want, log string }{
		{"right", testKey, dns.HmacSHA512, testSecret, "z.test.", "", `msg="zone transfer"`},
		{"none", "", "", "", "z.test.", "REFUSED", `err="dns.transfer does not list the client or its key"`},
		{"no such zone", testKey, dns.HmacSHA512, testSecret, "y.test.", "NOTAUTH", `zone=y.test. err="the lab has no such zone"`},
		{"unknown", "other.", dns.HmacSHA512, testSecret, "z.test.", "NOTAUTH", `key=other. err="the key is not in dns.keys with this algorithm (BADKEY)"`},
		{"wrong", testKey, dns.HmacSHA512, "d3Jvbmc=", "z.test.", "NOTAUTH", `err="the secret is another one (BADSIG)"`},
	} {
		m := new(dns.Msg).SetAxfr(tt.zone)
		tr := &dns.Transfer{ReadTimeout: time.Minute}
		if tt.key != "" {
			m.SetTsig(tt.key, tt.algorithm, 300, time.Now().Unix())
			tr.TsigSecret = map[string]string{tt.key: tt.secret}
		}
		ch, err := tr.In(m, ap.String())
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for e := range ch {
			if err = e.Error; err == nil {
				got += len(e.RR)
			}
		}
		netns.WaitFor(t, tt.log, func() bool { return log.count(tt.log) == 1 })
		if tt.want == "" && (err != nil || got != 3000+4) {
			t.Errorf("%s: %d records, %v", tt.name, got, err)
		}
		if tt.want != "" && err == nil {
			t.Errorf("%s: %d records, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzTSIG reads any message: none is authentic that was not signed.
func FuzzTSIG(f *testing.F) {
	m := new(dns.Msg).SetQuestion("www.z.test.", dns.TypeA)
	m.SetTsig(testKey, dns.HmacSHA256, 300, time.Now().Unix())
	packed, _, err := dns.TsigGenerate(m, "b3RoZXI=", "", false)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	table := compileFiles(f, keyedLab("/plain"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		var q query
		if q.read(b) != noError || q.tsig == 0 {
			return
		}
		s, code := table.verify(b, q.tsig, nil, time.Now())
		if code == noError || s.by() != "" {
			t.Fatalf("%x is authentic", b)
		}
		if s != nil && len(s.sign(make([]byte, headerLen), time.Now())) > headerLen+s.size() {
			t.Fatalf("%x: the reply's record is longer than the room for it", b)
		}
	})
}
