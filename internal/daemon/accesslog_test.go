package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestAccessLogIsWhole: a balancer with log: requests has a line for each request, however many are alike.
func TestAccessLogIsWhole(t *testing.T) {
	netns.Need(t, "root", "ip", "curl")
	r := newRig(t, "10.57.0.1")
	r.write(r.read() + "balancers:\n  web: {listen: \"10.57.0.1:80\", mode: http, log: requests, backends: [\"10.57.0.1:81\"], check: {kind: none}, redirect: https}\n")
	r.start()
	client := r.from("10.57.0.9")
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const requests = 300
	for n := range requests {
		resp, err := client.Get(fmt.Sprintf("http://10.57.0.1/%d", n%2))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMovedPermanently {
			t.Fatalf("%s, want 301", resp.Status)
		}
	}
	r.until("a line for each request", func() bool { return strings.Count(r.log.String(), "msg=request ") == requests })
}
