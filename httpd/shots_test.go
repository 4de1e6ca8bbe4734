package httpd_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestScreenshots draws the dashboard with a real browser into the folder BOOTLAB_SHOTS, for eyes and for docs.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("BOOTLAB_SHOTS")
	if dir == "" {
		t.Skip("set BOOTLAB_SHOTS to a folder")
	}
	netns.Need(t, "chromium")
	h := newFakeDaemon()
	s := httptest.NewServer(newAdmin(t, h, &logBuffer{}, nil).Trusted())
	defer s.Close()
	h2 := newAdminServer(t)
	h2.status.Reload.Err = "/etc/bootlab/lab.yaml:14:5: hosts.master-0.mac: 52:54:00:00:02:01 is the MAC of worker-1, too"
	h2.status.Servers[1].Serving, h2.status.Servers[1].Err = false, "listen udp :69: address already in use by in.tftpd[812]"
	s2 := httptest.NewServer(h2.admin.Trusted())
	defer s2.Close()
	for name, page := range map[string]string{"overview": s.URL + "/", "host": s.URL + "/hosts/master-1", "login": h2.url + "/", "trouble": s2.URL + "/", "empty": s.URL + "/hosts/nobody", "pool": s.URL + "/?q=guests", "nics": s.URL + "/hosts/loadbalancer"} {
		for size, flags := range map[string][]string{"": {"--window-size=1280,1500"}, "-phone": {"--window-size=500,1800"}, "-phone-dark": {"--window-size=500,1800", "--blink-settings=preferredColorScheme=0"}, "-dark": {"--window-size=1280,1500", "--blink-settings=preferredColorScheme=0"}} {
			args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
				"--user-data-dir=" + t.TempDir(), "--screenshot=" + filepath.Join(dir, name+size+".png")}, flags...)
			if out, err := exec.CommandContext(t.Context(), "chromium", append(args, page)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
}
