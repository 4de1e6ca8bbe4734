package daemon_test

import (
	"net"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestBalancersAreMeasured: status, /readyz and metrics say how many backends are healthy, and tell one that failed from one that was never
// there, also after a restart. Only the first is worth an alert.
func TestBalancersAreMeasured(t *testing.T) {
	netns.Need(t, "root", "ip", "curl")
	r := newRig(t, "10.57.0.1")
	const check = "check: {kind: tcp, interval: 100ms, timeout: 5s, rise: 1, fall: 1}"
	r.write(r.read() + "balancers:\n  web: {listen: \"10.57.0.1:80\", backends: [\"10.57.0.1:81\", \"10.57.0.1:82\"], " + check + "}\n  later: {listen: \"10.57.0.1:83\", backends: [\"10.57.0.1:84\"], " + check + "}\n" +
		"  plain: {listen: \"10.57.0.1:85\", backends: [\"10.57.0.1:81\"], check: {kind: none}}\n") // not measured, and no reason to complain
	l, err := net.Listen("tcp", "10.57.0.1:81")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r.start()
	want := func(web, later, open, socket string) {
		t.Helper()
		series := []string{}
		for name, states := range map[string]string{"web": web, "later": later} {
			for _, state := range strings.Fields(states) {
				state, n, _ := strings.Cut(state, "=")
				series = append(series, "\nbootlab_balancer_backends{balancer=\""+name+"\",state=\""+state+"\"} "+n+"\n")
			}
		}
		r.until(web+"; "+later, func() bool {
			m := r.get("http://10.57.0.1:9680/metrics")
			for _, s := range series {
				if !strings.Contains(m, s) {
					return false
				}
			}
			return true
		})
		if body := r.get("http://10.57.0.1:9680/readyz"); !strings.Contains(body, "\nbalancers: "+open+"\n") {
			t.Errorf("/readyz, want %q:\n%s", open, body)
		}
		if body := r.getBySocket("/readyz"); !strings.Contains(body, "\nbalancers: "+socket+"\n") {
			t.Errorf("/readyz by the socket, want %q:\n%s", socket, body)
		}
	}
	want("up=1 down=0 new=1", "up=0 down=0 new=1", "degraded: 1 of 3 without a healthy backend (bootlab status says which)", "degraded: later: 0 of 1 healthy, none has been healthy yet")
	if body := r.getBySocket("/api/v1/balancers"); !strings.Contains(body, `"state":"unchecked"`) || strings.Contains(body, `"unknown"`) {
		t.Errorf("balancers, want a backend that is unchecked:\n%s", body)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	down := "degraded: later: 0 of 1 healthy, none has been healthy yet; web: 0 of 2 healthy"
	want("up=0 down=1 new=1", "new=1", "degraded: 2 of 3 without a healthy backend (bootlab status says which)", down)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.start()
	want("up=0 down=1 new=1", "new=1", "degraded: 2 of 3 without a healthy backend (bootlab status says which)", down)
	if s := r.status(); len(s.Balancers) != 3 || s.Balancers[2].Name != "web" || s.Balancers[2].Down != 1 {
		t.Errorf("%+v", s.Balancers)
	}
}
