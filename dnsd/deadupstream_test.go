package dnsd

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// TestResolversWithDeadUpstream: with search lists, the resolvers of glibc and musl find the lab's names, and learn that others of its domains do not
// exist, while no upstream ever replies: neither waits for one, as nothing is asked upstream. A wait would end in "try again", not "none".
func TestResolversWithDeadUpstream(t *testing.T) {
	netns.Need(t, "root", "gcc", "musl-gcc", "unshare")
	const at = "127.53.0.10"
	up := newUpstream(t, func(*dns.Msg, string) *dns.Msg { return nil })
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 5*time.Second)
	serveAt(t, s, at+":53")
	dir := t.TempDir()
	source := write(t, filepath.Join(dir, "lookup.c"), "%s", lookupProgram)
	for _, search := range []string{"mycluster.example.com example.com", "apps.mycluster.example.com mycluster.example.com example.com local"} {
		conf := write(t, filepath.Join(dir, "resolv.conf"), "nameserver %s\nsearch %s\noptions ndots:5 timeout:3 attempts:2\n", at, search)
		for _, libc := range []struct{ name, compiler string }{{"glibc", "gcc"}, {"musl", "musl-gcc"}} {
			program := filepath.Join(dir, libc.name)
			netns.Run(t, libc.compiler, "-o", program, source)
			for _, tt := range []struct{ name, want string }{
				{"api.mycluster.example.com.", "192.168.131.10"}, {"nope.mycluster.example.com.", "none"},
				{"nope.example.com.", "none"}, {"printer.local", "none"}, {"nope", "none"}, {"9.131.168.192.in-addr.arpa.", "none"},
			} {
				if strings.HasPrefix(search, "apps") && tt.want == "none" {
					tt.want = "" // the wildcard *.apps has everything that the search list is added to
				}
				script := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s %s", conf, program, tt.name)
				out, err := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script).CombinedOutput()
				if err != nil || !strings.Contains(string(out), tt.want) {
					t.Errorf("%s, %s, search %s: %v: %q, want %s", libc.name, tt.name, search, err, out, tt.want)
				}
			}
		}
	}
	for len(up.asked) > 0 {
		if q := <-up.asked; !strings.HasSuffix(q, ".bootlab-loop.") {
			t.Errorf("asked upstream: %s", q)
		}
	}
}
