package netns

import (
	"net"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// TestEnter: two tests use the same address at the same time, and neither the process nor the other sees it.
func TestEnter(t *testing.T) {
	Need(t, "root", "ip")
	const addr = "10.77.0.1"
	t.Run("parallel", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				Enter(t)
				seg := NewSegment(t, addr+"/24")
				l, err := net.Listen("tcp", addr+":80")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c := seg.NewClient(t)
				Run(t, "ip", "-n", c.Name, "addr", "add", "10.77.0.2/24", "dev", "eth0")
				if out := c.Run(t, "ip", "route", "get", addr); !strings.Contains(out, "dev eth0") {
					t.Errorf("the client's way to the segment: %s", out)
				}
			})
		}
	})
	if out, err := exec.Command("ip", "-br", "addr").CombinedOutput(); err != nil || strings.Contains(string(out), addr) {
		t.Errorf("the process's own namespace: %v\n%s", err, out)
	}
}
