package dnsd

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// signedZone writes a signed zone and returns its file, and that of its key-signing key.
func signedZone(t *testing.T, origin, text string) (zone, anchor string) {
	t.Helper()
	netns.Need(t, "dnssec-keygen", "dnssec-signzone")
	dir := t.TempDir()
	command := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", origin)
	keys, err := filepath.Glob(filepath.Join(dir, "K*.key"))
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	command("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", origin)
	command("dnssec-signzone", "-S", "-o", origin, "-f", "signed", plain)
	return filepath.Join(dir, "signed"), keys[0]
}

// TestValidatedAnswers: what a validating server says of an answer, AD, and its signatures reach the client as asked; bogus data is
// SERVFAIL, except for a client that checks itself (CD).
func TestValidatedAnswers(t *testing.T) {
	t.Parallel()
	zone, anchor := signedZone(t, "signed.example", "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\nwww A 198.51.100.7\n")
	bogus, _ := signedZone(t, "bogus.example", "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\nwww A 198.51.100.7\n")
	_, other := signedZone(t, "bogus.example", "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n")
	port := netns.FreePort(t)
	auth := func(name, file string) string {
		return fmt.Sprintf("auth-zone:\n  name: %s\n  zonefile: %q\n  for-downstream: no\n  for-upstream: yes\n  fallback-enabled: no\n", name, file)
	}
	unbound(t, fmt.Sprintf("  interface: 127.0.0.1@%d\n  module-config: \"validator iterator\"\n  trust-anchor-file: %q\n  trust-anchor-file: %q\n  val-log-level: 2",
		port, anchor, other), auth("signed.example", zone), auth("bogus.example", bogus))
	at := netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", port))
	waitTCP(t, at.String())
	s := newServerWithTimeout(t, compile(t, forwardingLab(at)), nil, 5*time.Second)
	for _, tt := range []struct {
		name, owner     string
		do, ad, cd      bool
		code            int
		wantAD, wantSig bool
	}{
		{name: "plain", owner: "www.signed.example."},
		{name: "AD", owner: "www.signed.example.", ad: true, wantAD: true},
		{name: "DO", owner: "www.signed.example.", do: true, wantAD: true, wantSig: true},
		{name: "DO and CD", owner: "www.signed.example.", do: true, cd: true, wantSig: true},
		{name: "absent, DO", owner: "none.signed.example.", do: true, code: dns.RcodeNameError, wantAD: true, wantSig: true},
		{name: "absent, AD", owner: "none.signed.example.", ad: true, code: dns.RcodeNameError, wantAD: true},
		{name: "bogus", owner: "www.bogus.example.", do: true, code: dns.RcodeServerFailure},
		{name: "bogus, CD", owner: "www.bogus.example.", do: true, cd: true, wantSig: true},
	} {
		for _, when := range []string{"asked", "cached"} {
			m := new(dns.Msg).SetQuestion(tt.owner, dns.TypeA)
			m.AuthenticatedData, m.CheckingDisabled = tt.ad, tt.cd
			if tt.do {
				m.SetEdns0(4096, true)
			}
			got := exchange(t, s, m, inside)
			sig := false
			for _, rr := range append(got.Answer, got.Ns...) {
				sig = sig || rr.Header().Rrtype == dns.TypeRRSIG
			}
			if got.Rcode != tt.code || got.AuthenticatedData != tt.wantAD || sig != tt.wantSig || got.CheckingDisabled != tt.cd ||
				tt.do && (got.IsEdns0() == nil || !got.IsEdns0().Do()) {
				t.Errorf("%s, %s: %v\nwant code %d, AD %t, RRSIG %t", tt.name, when, got, tt.code, tt.wantAD, tt.wantSig)
			}
		}
	}
}
