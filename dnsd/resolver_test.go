package dnsd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"

	"github.com/miekg/dns"
)

// lookupProgram prints the addresses that the C library finds for a name, or its error.
const lookupProgram = `#include <netdb.h>
#include <stdio.h>
int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	int err = getaddrinfo(argv[1], 0, &hints, &found);
	if (err) { printf("none\n"); return err == EAI_NONAME || err == -5 ? 0 : 1; }
	for (; found; found = found->ai_next) {
		char text[256];
		getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST);
		printf("%s\n", text);
	}
	return 0;
}
`

// TestResolvers: the resolvers of glibc and musl, with a search list, find the lab's names and those of others, and learn at once what
// does not exist: no name of the lab's domains is asked upstream.
func TestResolvers(t *testing.T) {
	netns.Need(t, "root", "gcc", "musl-gcc", "unshare")
	const at = "127.53.0.9"
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		if strings.ToLower(q.Question[0].Name) == "www.example.org." {
			if q.Question[0].Qtype == dns.TypeA {
				return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7")
			}
			m := liar(q, nil, []string{"example.org. 60 IN SOA a. b. 1 2 3 4 5"}, nil)
			return m
		}
		return reply(q)
	})
	s := newServerWithTimeout(t, compile(t, forwardingLab(up.addr)), nil, 5*time.Second)
	serveAt(t, s, at+":53")
	dir := t.TempDir()
	source, conf := filepath.Join(dir, "lookup.c"), filepath.Join(dir, "resolv.conf")
	for path, text := range map[string]string{source: lookupProgram, conf: "nameserver " + at + "\nsearch mycluster.example.com example.com\noptions ndots:3 timeout:10 attempts:1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, libc := range []struct{ name, compiler string }{{"glibc", "gcc"}, {"musl", "musl-gcc"}} {
		program := filepath.Join(dir, libc.name)
		netns.Run(t, libc.compiler, "-o", program, source)
		for _, tt := range []struct{ name, want string }{
			{"api", "192.168.131.10"}, {"worker-1", "192.168.131.13"}, {"worker-1.mycluster", "192.168.131.13"},
			{"api.mycluster.example.com", "192.168.131.10"}, {"x.y.apps", "192.168.131.10"}, {"localhost.", "127.0.0.1"},
			{"www.example.org", "198.51.100.7"}, {"nope", "none"}, {"nope.mycluster", "none"}, {"nope.mycluster.example.com", "none"}, {"printer.local", "none"},
		} {
			script := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec %s %s", conf, program, tt.name)
			out, err := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script).CombinedOutput()
			if err != nil || !strings.Contains(string(out), tt.want+"\n") {
				t.Errorf("%s, %s: %v: %q, want %s", libc.name, tt.name, err, out, tt.want)
			}
		}
	}
	for len(up.asked) > 0 {
		if q := <-up.asked; strings.Contains(q, "example.com") || strings.Contains(q, "local") || strings.HasSuffix(q, " nope.") {
			t.Errorf("asked upstream: %s", q)
		}
	}
}

// TestUnboundAsClient: unbound, which checks more of an answer than other clients do, forwards to us: the lab's names, wildcards, names
// that do not exist, delegations and names of others.
func TestUnboundAsClient(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, func(q *dns.Msg, _ string) *dns.Msg {
		if strings.HasPrefix(strings.ToLower(q.Question[0].Name), "alias.") {
			return reply(q, q.Question[0].Name+" 60 IN CNAME www.example.org.", "www.example.org. 60 IN A 198.51.100.7")
		}
		return reply(q, q.Question[0].Name+" 60 IN A 198.51.100.7")
	})
	l := forwardingLab(up.addr)
	l.Zones = append(l.Zones, zoneOfLines("d.example.", "moved DNAME mycluster.example.com."))
	s := newServerWithTimeout(t, compile(t, l), nil, 5*time.Second)
	at := serve(t, s, "127.0.0.1")
	port := netns.FreePort(t)
	unbound(t, fmt.Sprintf("  interface: 127.0.0.1@%d\n  use-caps-for-id: yes\n  harden-below-nxdomain: yes\n  local-zone: test. nodefault", port),
		fmt.Sprintf("forward-zone:\n  name: .\n  forward-addr: 127.0.0.1@%d\n", at.Port()))
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	waitTCP(t, addr)
	c := &dns.Client{Timeout: 20 * time.Second}
	for _, tt := range []dialogue{
		{"api.mycluster.example.com. A", "NOERROR ra\nan api.mycluster.example.com. A 192.168.131.10"},
		{"x.apps.mycluster.example.com. A", "NOERROR ra\nan x.apps.mycluster.example.com. A 192.168.131.10"},
		{"api.mycluster.example.com. AAAA", "NOERROR ra\nns mycluster.example.com. SOA bootlab.example.com."},
		{"nope.mycluster.example.com. A", "NXDOMAIN ra\nns mycluster.example.com. SOA bootlab.example.com."},
		{"out.z.test. A", "NOERROR ra\nan out.z.test. CNAME www.example.org.\nan www.example.org. A 198.51.100.7"},
		{"alias.example.org. A", "NOERROR ra\nan alias.example.org. CNAME www.example.org.\nan www.example.org. A 198.51.100.7"},
		{"api.moved.d.example. A", "NOERROR ra\nan moved.d.example. DNAME mycluster.example.com.\nan api.moved.d.example. CNAME api.mycluster.example.com.\n" +
			"an api.mycluster.example.com. A 192.168.131.10"},
	} {
		owner, qtype, _ := strings.Cut(tt.question, " ")
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion(owner, dns.StringToType[qtype]), addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(m); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.question, got, tt.want)
		}
	}
}
