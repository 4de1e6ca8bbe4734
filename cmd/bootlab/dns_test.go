package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDNSLog: dns log shows the queries of a client, and of no other.
func TestDNSLog(t *testing.T) {
	netns.Need(t, "dig")
	h := serve(t)
	cmd := bootlab(t.Context(), "dns", "log", "127.0.0.1", "--json", "--lab", h.lab)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.edit(`dns: "10.88.0.1:53"`, `dns: ":53"`)
	h.stop()
	h.start()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan api.DNSQuery, 1)
	go func() {
		defer close(heard)
		lines := bufio.NewScanner(out)
		var q api.DNSQuery
		if lines.Scan() && json.Unmarshal(lines.Bytes(), &q) == nil {
			heard <- q
		}
	}()
	h.until("a query is logged", func() bool {
		netns.Run(t, "dig", "+short", "@10.88.0.1", "b.lab.example") // from another address
		if got := netns.Run(t, "dig", "+short", "@127.0.0.1", "a.lab.example"); strings.TrimSpace(got) != "10.88.0.11" {
			t.Errorf("a is at %s", got)
		}
		select {
		case q := <-heard:
			if q.Question != "a.lab.example. A" || q.Client.String() != "127.0.0.1" || q.Code != "NOERROR" || q.Source != "derived" || q.Records != 1 {
				t.Errorf("logged %+v", q)
			}
			return true
		default:
			return false
		}
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}
