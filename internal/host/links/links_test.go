package links

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestChanged: an interface that is made, gets an address, goes up or is deleted notifies; many at once do, too.
func TestChanged(t *testing.T) {
	netns.Need(t, "root", "ip")
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, args := range [][]string{
		{"link", "add", "br7", "type", "bridge"}, {"addr", "add", "10.0.0.1/24", "dev", "br7"}, {"addr", "add", "fd00::1/64", "dev", "br7"},
		{"link", "set", "br7", "up"}, {"link", "del", "br7"},
	} {
		for settled := false; !settled; { // what the step before has caused
			select {
			case <-w.Changed():
			case <-time.After(200 * time.Millisecond):
				settled = true
			}
		}
		netns.Run(t, "ip", args...)
		select {
		case <-w.Changed():
		case <-time.After(time.Minute):
			t.Errorf("ip %v: no notification", args)
		}
	}
}

// TestNil: without a socket there are no notifications, and nothing fails.
func TestNil(t *testing.T) {
	t.Parallel()
	var w *Watch
	select {
	case <-w.Changed():
		t.Error("a notification")
	default:
	}
	w.Close()
}
