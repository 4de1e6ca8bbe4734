package dnsd

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestServerCookie: the examples of RFC 9018, appendix A.
func TestServerCookie(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, from, secret, query string
		now                       int64
		want                      string
		state                     cookieState
	}{
		{"new", "198.51.100.100", "e5e973e5a6b2a43f48e7dc849e37bfcf", "2464c4abcf10c957", 1559731985, "2464c4abcf10c957010000005cf79f111f8130c3eee29480", cookieClient},
		{"renewed", "198.51.100.100", "e5e973e5a6b2a43f48e7dc849e37bfcf", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", 1559734385,
			"2464c4abcf10c957010000005cf7a871d4a564a1442aca77", cookieValid},
		{"young", "198.51.100.100", "e5e973e5a6b2a43f48e7dc849e37bfcf", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", 1559731990,
			"2464c4abcf10c957010000005cf79f111f8130c3eee29480", cookieValid},
	} {
		var secret [16]byte
		copy(secret[:], unhex(t, tt.secret))
		q := query{}
		q.cookieLen = copy(q.cookie[:], unhex(t, tt.query))
		state := q.checkCookie(&secret, &[16]byte{}, netip.MustParseAddr(tt.from), time.Unix(tt.now, 0))
		if got := hex.EncodeToString(q.cookie[:cookieLen]); got != tt.want || state != tt.state {
			t.Errorf("%s: %s, %d, want %s, %d", tt.name, got, state, tt.want, tt.state)
		}
	}
	secret := newCookieSecret()
	now, from := time.Unix(1<<32-10, 0), netip.MustParseAddr("2001:db8::1") // its 32 bits wrap around
	q := query{cookieLen: clientCookieLen}
	q.makeCookie(&secret, from, now)
	q.cookieLen = cookieLen
	for _, tt := range []struct {
		name  string
		after time.Duration
		from  netip.Addr
		want  cookieState
	}{
		{"wrapped", 20 * time.Second, from, cookieValid}, {"of another address", 0, netip.MustParseAddr("2001:db8::2"), cookieClient},
		{"old", 61 * time.Minute, from, cookieClient}, {"from the future", -6 * time.Minute, from, cookieClient},
	} {
		again := q
		if got := again.checkCookie(&secret, &[16]byte{}, tt.from, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// cookieOf returns the cookie of a reply.
func cookieOf(m *dns.Msg) string {
	if m == nil || m.IsEdns0() == nil {
		return ""
	}
	for _, o := range m.IsEdns0().Option {
		if c, ok := o.(*dns.EDNS0_COOKIE); ok {
			return c.Cookie
		}
	}
	return ""
}

func withCookie(question, cookie string) *dns.Msg {
	owner, qtype, _ := strings.Cut(question, " ")
	m := new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype])
	m.SetEdns0(maxUDP, false)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie})
	return m
}

// TestCookies: a query with a cookie gets one back, however long the reply is; a malformed one is FORMERR.
func TestCookies(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, openshift()), nil)
	for _, tt := range []struct {
		cookie string
		code   int
		answer int
	}{
		{"0102030405060708", dns.RcodeSuccess, cookieLen}, {"0102030405060708" + strings.Repeat("ab", 8), dns.RcodeSuccess, cookieLen},
		{"0102030405060708" + strings.Repeat("ab", 32), dns.RcodeSuccess, cookieLen},
		{"", dns.RcodeFormatError, 0}, {"01020304050607", dns.RcodeFormatError, 0}, {strings.Repeat("ab", 15), dns.RcodeFormatError, 0},
		{strings.Repeat("ab", 41), dns.RcodeFormatError, 0},
	} {
		m := exchange(t, s, withCookie("api.mycluster.example.com. A", tt.cookie), outside)
		got := cookieOf(m)
		if m.Rcode != tt.code || len(got) != 2*tt.answer || tt.answer > 0 && got[:16] != tt.cookie[:16] {
			t.Errorf("%q: %s, cookie %q", tt.cookie, dns.RcodeToString[m.Rcode], got)
		}
	}
}

// TestCookieOfBIND: named takes a cookie that we made, and we take one of named's, if both have the same secret (RFC 9018).
func TestCookieOfBIND(t *testing.T) {
	t.Parallel()
	netns.Need(t, "named")
	dir, port := t.TempDir(), netns.FreePort(t)
	s := newServer(t, compile(t, openshift()), nil)
	conf := filepath.Join(dir, "named.conf")
	text := fmt.Sprintf("options { directory %q; pid-file none; session-keyfile none; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; }; recursion no;\n"+
		"cookie-algorithm siphash24; cookie-secret %q; require-server-cookie yes; };\ncontrols { };\n", dir, port, hex.EncodeToString(s.cookies.Load().Current[:]))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "named", "-g", "-n", "1", "-c", conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	at := fmt.Sprintf("127.0.0.1:%d", port)
	waitFor(t, at)
	c := &dns.Client{Timeout: 10 * time.Second}
	ask := func(cookie string) *dns.Msg {
		m, _, err := c.Exchange(withCookie("a.example. A", cookie), at)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	const client = "0102030405060708"
	if m := ask(client); m.Rcode != dns.RcodeBadCookie {
		t.Fatalf("named does not want cookies: %s", dns.RcodeToString[m.Rcode])
	}
	ours := cookieOf(exchange(t, s, withCookie("a.example. A", client), "127.0.0.1"))
	m := ask(ours)
	if m.Rcode != dns.RcodeRefused {
		t.Errorf("named refuses our cookie %s: %s", ours, dns.RcodeToString[m.Rcode])
	}
	q := query{}
	q.cookieLen = copy(q.cookie[:], unhex(t, cookieOf(ask(client))))
	if state := s.checkCookie(&q, netip.MustParseAddr("127.0.0.1")); state != cookieValid {
		t.Errorf("we refuse the cookie of named: %x", q.cookie[:cookieLen])
	}
}
