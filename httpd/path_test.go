package httpd

import (
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
)

// FuzzBootPath asserts of every path that is accepted: its name stays inside, its one spelling parses to the same target,
// and so does its MAC in any accepted spelling; what is logged of it never holds the token.
func FuzzBootPath(f *testing.F) {
	for _, seed := range []string{
		"/boot/52-54-00-2c-01-10/boot.ipxe", "/boot/52%3A54%3A00%3A2C%3A01%3A10/boot.ipxe", "//boot/52:54:00:2c:01:10//ipxe.efi",
		"/boot/52-54-00-2c-01-10/autoexec.ipxe", "/boot/52-54-00-2c-01-10/grub/x86_64-efi/core.efi", "/files/images/a+b.img",
		"/config/52-54-00-2c-01-10/0123456789abcdef/master.ign", "/config/52:54:00:2C:01:10/t/", "/done/52-54-00-2c-01-10/t",
		"/files/%2e%2e/etc/passwd", "/files/../x", "/files/a//../b", "/mirror/debian/pool/main/g/g++/g++_4%3a12.deb", "/mirror/debian", "/mirror//x", "/mirror/a/../b", "/boot//x", "/files/", "", "*", "/report/52-54-00-2c-01-10", "/report/52-54-00-2c-01-10/x", "/answer", "/answer/", "/answer/x", "/config/52-54-00-2c-01-10//x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		p, err := url.PathUnescape(escaped)
		if err != nil {
			return
		}
		got := parsePath(p)
		if got.route == routeNone {
			if got != (target{name: got.name}) || got.name == "" {
				t.Fatalf("%q: refused, but %+v", p, got)
			}
			return
		}
		if got.route != routeDone && got.route != routeReport && got.route != routeAnswer && (!fs.ValidPath(got.name) || got.name == ".") {
			t.Fatalf("%q: name %q leaves its place", p, got.name)
		}
		for _, spelling := range spellings(got) {
			if again := parsePath(spelling); again != got {
				t.Fatalf("%q is %+v, but %q is %+v", p, got, spelling, again)
			}
		}
		// A token may look like a part of the path: only one that stands nowhere else can be told.
		public := lab.PathConfig + lab.PathDone + got.mac.Hyphens() + "…" + got.name
		if got.token != "" && !strings.Contains(public, got.token) && strings.Contains(got.String(), got.token) {
			t.Fatalf("%q: token %q in %q", p, got.token, got)
		}
	})
}

// spellings returns the path of t with its MAC in every accepted form.
func spellings(t target) (paths []string) {
	for _, mac := range []string{
		t.mac.Hyphens(), t.mac.String(), strings.ToUpper(t.mac.Hyphens()), strings.ToUpper(t.mac.String()),
	} {
		switch t.route {
		case routeFile:
			paths = append(paths, "/files/"+t.name)
		case routeMirror:
			paths = append(paths, "/mirror/"+t.mirror+"/"+t.name, "//mirror//"+t.mirror+"//"+t.name)
		case routeScript, routeFirmware:
			paths = append(paths, "/boot/"+mac+"/"+t.name, "//boot//"+mac+"/"+t.name)
		case routeConfig:
			paths = append(paths, "/config/"+mac+"/"+t.token+"/"+t.name)
		case routeReport:
			paths = append(paths, "/report/"+mac)
		case routeDone:
			paths = append(paths, "/done/"+mac+"/"+t.token)
		}
	}
	return paths
}
