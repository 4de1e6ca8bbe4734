package httpd_test

import (
	"io"
	"net/http"
	"net/netip"
	"testing"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// TestReloadDuringADownload: a download is the machine's that had the address when it asked, though the lab gives the address to another one
// before it ends.
func TestReloadDuringADownload(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{"images/vmlinuz": image(32 << 20)}) // more than the buffers of a connection
	tableOf := func(mac lab.MAC) *httpd.Table {
		l := &lab.Lab{Appliance: lab.Appliance{Files: w.dir}, Profiles: []*lab.Profile{{Name: "p", Kernel: "images/vmlinuz"}}}
		l.Hosts = []*lab.Host{{Name: "a", MACs: []lab.MAC{mac}, IP: netip.MustParseAddr("127.0.0.1")}}
		allowed, err := files.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		return httpd.Compile(l, allowed)
	}
	w.table.Store(tableOf(macOf(1)))
	resp, err := http.Get("http://" + w.addr + "/files/images/vmlinuz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.table.Store(tableOf(macOf(2)))
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if got := w.events.next(t).MAC; got != macOf(1) {
		t.Errorf("the download is that of %s, want %s", got, macOf(1))
	}
}
