package httpd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bootlab/bootlab/httpd"
	"github.com/bootlab/bootlab/test/support/netns"
)

const hyphens = "52-54-00-00-02-01"

// TestBootAsStranger asks with curl for everything that a machine may ask for, and for what it may not.
func TestBootAsStranger(t *testing.T) {
	t.Parallel()
	netns.Need(t, "curl")
	kernel := image(100_000)
	w := newBootServer(t, httpd.Limits{}, map[string][]byte{
		"images/vmlinuz": kernel, "images/initrd.img": []byte("initrd"), "images/other": []byte("named by nobody"),
		"public/a b+c.txt": []byte("hello"), "public/secret.ign": []byte("key"), "public/dir/x": nil, "public/dir/.kernel.part": []byte("half a ke"), "secrets/bmc": []byte("calvin"),
	})
	for link, to := range map[string]string{"public/out": "/etc/passwd", "images/link": "../../../../../etc/passwd", "public/in": "dir"} {
		if err := os.Symlink(to, filepath.Join(w.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	const mac = testMAC
	config := "/config/" + hyphens + "/" + testToken
	tests := []struct {
		name   string
		args   []string
		path   string
		status string
		has    []string // header lines
		body   string
		events []string
		calls  []string
	}{
		{name: "script", path: "/boot/" + hyphens + "/boot.ipxe", status: "200",
			has: []string{"Content-Length: 19", "Content-Type: text/plain; charset=utf-8", "Cache-Control: no-store"}, body: "#!ipxe\n# boot.ipxe\n",
			calls: []string{"script " + mac + " 127.0.0.1 boot.ipxe", "received " + mac + " boot.ipxe"}},
		{name: "script with colons", path: "/boot/52:54:00:00:02:01/autoexec.ipxe?x=1", status: "200", body: "#!ipxe\n# autoexec.ipxe\n",
			calls: []string{"script " + mac + " 127.0.0.1 autoexec.ipxe", "received " + mac + " autoexec.ipxe"}},
		{name: "script with encoded colons", path: "/boot/52%3A54%3a00%3A00%3A02%3A01/boot.ipxe", status: "200", body: "#!ipxe\n# boot.ipxe\n",
			calls: []string{"script " + mac + " 127.0.0.1 boot.ipxe", "received " + mac + " boot.ipxe"}},
		{name: "script HEAD", args: []string{"-I"}, path: "/boot/" + hyphens + "/boot.ipxe", status: "200", has: []string{"Content-Length: 19"},
			calls: []string{"script " + mac + " 127.0.0.1 boot.ipxe"}},
		{name: "script of a stranger", path: "/boot/AA-BB-CC-00-11-22/boot.ipxe", status: "404", body: "Not Found\n",
			calls: []string{"script aa:bb:cc:00:11:22 127.0.0.1 boot.ipxe"}},
		{name: "script POST", args: []string{"-X", "POST"}, path: "/boot/" + hyphens + "/boot.ipxe", status: "405", has: []string{"Allow: GET, HEAD"},
			body: "Method Not Allowed\n"},
		{name: "no MAC", path: "/boot/master-0/boot.ipxe", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " boot/master-0/boot.ipxe 0 nothing is served at this path"}},
		{name: "mixed separators", path: "/boot/52-54:00-00-02-01/boot.ipxe", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " boot/52-54:00-00-02-01/boot.ipxe 0 nothing is served at this path"}},

		{name: "firmware HEAD", args: []string{"-I"}, path: "/boot/" + hyphens + "/ipxe.efi", status: "200",
			has: []string{"Content-Length: 10000", "Content-Type: application/efi", "Accept-Ranges: bytes", "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT"}},
		{name: "firmware", path: "/boot/" + hyphens + "/undionly.kpxe", status: "200", has: []string{"Content-Type: application/octet-stream"}, body: "PXE",
			events: []string{"firmware_served " + mac + " boot/" + hyphens + "/undionly.kpxe 3"}},
		{name: "firmware in a folder", path: "//boot//" + hyphens + "///grub/x/grubx.efi", status: "200", body: "MZ grub",
			events: []string{"firmware_served " + mac + " boot/" + hyphens + "/grub/x/grubx.efi 7"}},
		{name: "firmware gone", path: "/boot/" + hyphens + "/shim.efi", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " boot/" + hyphens + "/shim.efi 0 file not found"}},
		{name: "firmware folder", path: "/boot/" + hyphens + "/grub", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " boot/" + hyphens + "/grub 0 not to be served"}},

		{name: "file", path: "/files/images/vmlinuz", status: "200", has: []string{"Content-Length: 100000"}, body: string(kernel),
			events: []string{"file_served " + mac + " files/images/vmlinuz 100000"}},
		{name: "file HEAD", args: []string{"-I"}, path: "/files/images/vmlinuz", status: "200", has: []string{"Content-Length: 100000"}},
		{name: "file, any case", path: "/files/IMAGES/VMLINUZ", status: "200", body: string(kernel),
			events: []string{"file_served " + mac + " files/IMAGES/VMLINUZ 100000"}},
		{name: "file, first part", args: []string{"-r", "0-9"}, path: "/files/images/vmlinuz", status: "206",
			has: []string{"Content-Range: bytes 0-9/100000", "Content-Length: 10"}, body: string(kernel[:10])},
		{name: "file, last part", args: []string{"-r", "50000-"}, path: "/files/images/vmlinuz", status: "206", body: string(kernel[50000:]),
			events: []string{"file_served " + mac + " files/images/vmlinuz 50000"}},
		{name: "file, last bytes", args: []string{"-r", "-7"}, path: "/files/images/vmlinuz", status: "206", body: string(kernel[99993:]),
			events: []string{"file_served " + mac + " files/images/vmlinuz 7"}},
		{name: "file, beyond the end", args: []string{"-r", "100000-"}, path: "/files/images/vmlinuz", status: "416",
			has: []string{"Content-Range: bytes */100000"}, body: "invalid range: failed to overlap\n"},
		{name: "file, not modified", args: []string{"-z", "Fri, 01 Jan 2100 00:00:00 GMT"}, path: "/files/images/vmlinuz", status: "304"},
		{name: "public", path: "/files/public/a%20b+c.txt", status: "200", has: []string{"Content-Type: text/plain; charset=utf-8"}, body: "hello",
			events: []string{"file_served " + mac + " files/public/a b+c.txt 5"}},
		{name: "empty file", path: "/files/public/in/x", status: "200", has: []string{"Content-Length: 0"},
			events: []string{"file_served " + mac + " files/public/in/x 0"}},
		{name: "file gone", path: "/files/images/gone.img", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " files/images/gone.img 0 file not found"}},
		{name: "file gone, HEAD", args: []string{"-I"}, path: "/files/images/gone.img", status: "404",
			events: []string{"file_missing " + mac + " files/images/gone.img 0 file not found"}},
		{name: "image not pulled yet", path: "/files/public/fcos/kernel", status: "503", has: []string{"Retry-After: 5"}, body: "Service Unavailable\n",
			events: []string{"file_missing " + mac + " files/public/fcos/kernel 0 not pulled yet: bootlab images pull"}},
		{name: "image being pulled, HEAD", args: []string{"-I"}, path: "/files/public/dir/kernel", status: "503", has: []string{"Retry-After: 5"},
			events: []string{"file_missing " + mac + " files/public/dir/kernel 0 not pulled yet: bootlab images pull"}},
		{name: "a part of an image", path: "/files/public/dir/.kernel.part", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/public/dir/.kernel.part 0 not to be served"}},
		{name: "image that is there", path: "/files/images/initrd.img", status: "200", body: "initrd",
			events: []string{"file_served " + mac + " files/images/initrd.img 6"}},
		{name: "file PUT", args: []string{"-X", "PUT"}, path: "/files/images/vmlinuz", status: "405", body: "Method Not Allowed\n"},

		{name: "named by nobody", path: "/files/images/other", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/images/other 0 not to be served: no profile names it, and it is not below public/: name it in a profile, or put it below files/public/"}},
		{name: "secret", path: "/files/secrets/bmc", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/secrets/bmc 0 not to be served: no profile names it, and it is not below public/: name it in a profile, or put it below files/public/"}},
		{name: "document", path: "/files/public/secret.ign", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/public/secret.ign 0 not to be served: a config document, a template or a secret of the lab"}},
		{name: "folder", path: "/files/public/dir", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/public/dir 0 not to be served: not a regular file"}},
		{name: "folder with slash", path: "/files/public/", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " files/public/ 0 nothing is served at this path"}},
		{name: "link out", path: "/files/public/out", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/public/out 0 not to be served"}},
		{name: "named link out", path: "/files/images/link", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/images/link 0 not to be served"}},
		{name: "dots", path: "/files/public/../secrets/bmc", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " files/public/../secrets/bmc 0 nothing is served at this path"}},
		{name: "encoded dots", path: "/files/public/%2e%2e/secrets/bmc", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " files/public/../secrets/bmc 0 nothing is served at this path"}},
		{name: "encoded slash", path: "/files/public/..%2f..%2fetc/passwd", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " files/public/../../etc/passwd 0 nothing is served at this path"}},
		{name: "dots past the MAC", path: "/boot/" + hyphens + "/../../../etc/passwd", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " boot/" + hyphens + "/../../../etc/passwd 0 nothing is served at this path"}},
		{name: "zero byte", path: "/files/public/a%00b", status: "403", body: "Forbidden\n",
			events: []string{"file_missing " + mac + " files/public/a\x00b 0 not to be served"}},

		{name: "config", path: config + "/master.ign", status: "200",
			has:  []string{"Content-Type: application/vnd.coreos.ignition+json", "Content-Length: 32", "Cache-Control: no-store"},
			body: `{"ignition":{"version":"3.4.0"}}`, calls: []string{"config " + mac + " master.ign", "read " + mac + " master.ign 32"}},
		{name: "config HEAD is no read", args: []string{"-I"}, path: config + "/master.ign", status: "200", has: []string{"Content-Length: 32"},
			calls: []string{"config " + mac + " master.ign"}},
		{name: "config, all of it as a range", args: []string{"-r", "0-"}, path: config + "/nocloud/user-data", status: "200", body: `{"ignition":{"version":"3.4.0"}}`,
			calls: []string{"config " + mac + " nocloud/user-data", "read " + mac + " nocloud/user-data 32"}},
		{name: "config, to its last byte", args: []string{"-r", "0-31"}, path: config + "/master.ign", status: "200", body: `{"ignition":{"version":"3.4.0"}}`,
			calls: []string{"config " + mac + " master.ign", "read " + mac + " master.ign 32"}},
		{name: "config, a part is no read", args: []string{"-r", "0-3"}, path: config + "/master.ign", status: "416", body: "Requested Range Not Satisfiable\n",
			calls: []string{"config " + mac + " master.ign"}, events: []string{"config_refused " + mac + " config/" + hyphens + "/…/master.ign 0 a part was requested (Range: \"bytes=0-3\"): only the whole document is sent"}},
		{name: "config, the rest is no read", args: []string{"-r", "16-"}, path: config + "/master.ign", status: "416", body: "Requested Range Not Satisfiable\n",
			calls: []string{"config " + mac + " master.ign"}, events: []string{"config_refused " + mac + " config/" + hyphens + "/…/master.ign 0 a part was requested (Range: \"bytes=16-\"): only the whole document is sent"}},
		{name: "config, several parts", args: []string{"-r", "0-,0-"}, path: config + "/master.ign", status: "416", body: "Requested Range Not Satisfiable\n",
			calls: []string{"config " + mac + " master.ign"}, events: []string{"config_refused " + mac + " config/" + hyphens + "/…/master.ign 0 a part was requested (Range: \"bytes=0-,0-\"): only the whole document is sent"}},
		{name: "script, a part", args: []string{"-r", "3-"}, path: "/boot/" + hyphens + "/boot.ipxe", status: "416", body: "Requested Range Not Satisfiable\n",
			calls: []string{"script " + mac + " 127.0.0.1 boot.ipxe"}, events: []string{"script_refused " + mac + " boot/" + hyphens + "/boot.ipxe 0 a part was requested (Range: \"bytes=3-\"): only the whole document is sent"}},
		{name: "config not yet", path: config + "/early.ign", status: "503", has: []string{"Retry-After: 5"}, body: "Service Unavailable\n",
			calls: []string{"config " + mac + " early.ign"}},
		{name: "config broken", path: config + "/broken.ign", status: "500", body: "Internal Server Error\n",
			calls: []string{"config " + mac + " broken.ign"}},
		{name: "config panics", path: config + "/panic", status: "500", body: "Internal Server Error\n", calls: []string{"config " + mac + " panic"}},
		{name: "config, wrong token", path: "/config/" + hyphens + "/guess/master.ign", status: "403", body: "Forbidden\n",
			calls: []string{"config " + mac + " master.ign"}},
		{name: "config without name", path: config + "/", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " config/" + hyphens + "/… 0 nothing is served at this path"}},
		{name: "config POST", args: []string{"-d", "x"}, path: config + "/master.ign", status: "405", body: "Method Not Allowed\n"},

		{name: "done GET", path: "/done/" + hyphens + "/" + testToken, status: "200", body: "ok\n", calls: []string{"done " + mac}},
		{name: "done POST", args: []string{"-d", `{"event_type":"finish"}`}, path: "/done/52-54-00-00-02-01/" + testToken + "/", status: "200", body: "ok\n",
			calls: []string{"done " + mac}},
		{name: "done HEAD", args: []string{"-I"}, path: "/done/" + hyphens + "/" + testToken, status: "405", has: []string{"Allow: GET, POST"}},
		{name: "done, wrong token", path: "/done/" + hyphens + "/guess", status: "403", body: "Forbidden\n", calls: []string{"done " + mac}},
		{name: "done without token", path: "/done/" + hyphens, status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " done/" + hyphens + " 0 nothing is served at this path"}},
		{name: "answer", args: []string{"-H", "Content-Type: application/json; charset=utf-8", "-H", "Accept: application/json, application/toml;q=0.5",
			"-d", `{"$schema":{"version":"1.2"},"product":{"product":"pve"},"network_interfaces":[{"link":"lo","mac":"00:00:00:00:00:00"},{"link":"ens18","mac":"` + mac + `"}]}`},
			path: "/answer", status: "200", has: []string{"Content-Type: application/toml", "Content-Length: 9"}, body: "[global]\n",
			calls: []string{"answer [00:00:00:00:00:00 " + mac + "] 127.0.0.1", "read " + mac + " answer.toml 9"}},
		{name: "answer for no NIC of ours", args: []string{"-d", `{"network_interfaces":[{"mac":"52:54:00:00:00:99"},{"mac":"?"}]}`}, path: "/answer/", status: "403",
			body: "Forbidden\n", calls: []string{"answer [52:54:00:00:00:99] 127.0.0.1"}},
		{name: "answer for no report", args: []string{"-d", "hello"}, path: "/answer", status: "403", body: "Forbidden\n", calls: []string{"answer [] 127.0.0.1"}},
		{name: "answer GET", path: "/answer", status: "405", has: []string{"Allow: POST"}, body: "Method Not Allowed\n"},
		{name: "nothing there", path: "/", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " / 0 nothing is served at this path"}},
		{name: "API is not here", path: "/api/v1/status", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " api/v1/status 0 nothing is served at this path"}},
		{name: "files/ left out", path: "/public/x", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " public/x 0 nothing is served at this path"}},
		{name: "a token elsewhere", path: "/confg/" + hyphens + "/ABCDEFGHIJKLMNOPQRSTUVWXYZ/master.ign", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " confg/" + hyphens + "/…/master.ign 0 nothing is served at this path"}},
		{name: "the daemon's own check", path: httpd.SelfTestPath, status: "404", body: "Not Found\n"},
		{name: "metrics are not here", path: "/metrics", status: "404", body: "Not Found\n",
			events: []string{"file_missing " + mac + " metrics 0 nothing is served at this path"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(w.service.noted())
			w.events.tell()
			header, body := curl(t, append(slices.Clone(tt.args), w.url(tt.path))...)
			if slices.Contains(tt.args, "-I") {
				body = "" // curl prints the header
			}
			if !strings.HasPrefix(header, "HTTP/1.1 "+tt.status+" ") {
				t.Errorf("answer %q, want status %s", header, tt.status)
			}
			for _, line := range tt.has {
				if !strings.Contains(header, line+"\n") {
					t.Errorf("header lacks %q:\n%s", line, header)
				}
			}
			if regexp.MustCompile(`(?mi)^(server|transfer-encoding):`).MatchString(header) {
				t.Errorf("header says too much:\n%s", header)
			}
			if body != tt.body {
				t.Errorf("body differs: got %d bytes %.60q, want %d bytes %.60q", len(body), body, len(tt.body), tt.body)
			}
			if diff := cmp.Diff(tt.events, w.events.settled(t, len(tt.events))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.calls, w.service.settled(t, before, len(tt.calls))); diff != "" {
				t.Errorf("boot service (-want +got):\n%s", diff)
			}
		})
	}
	w.end(t)()
	if logs := w.logs.String(); strings.Contains(logs, testToken) || !strings.Contains(logs, "config/"+hyphens+"/…/master.ign") {
		t.Errorf("the log holds a token, or not what it should:\n%s", logs)
	} else if strings.Contains(logs, "not yet") || !strings.Contains(logs, "out of ink") {
		t.Errorf("a refusal, which the boot service records, is logged once more, or a fault of the daemon is not:\n%s", logs)
	}
	if logs := w.logs.String(); !strings.Contains(logs, `msg="request failed"`) || !strings.Contains(logs, "path=config/"+hyphens+"/…/broken.ign status=500") {
		t.Errorf("the log does not name the request that failed:\n%s", logs)
	}
	if n := testutil.CollectAndCount(w.reg, httpd.MetricRequests); n == 0 {
		t.Error("no requests were counted")
	}
}

func TestNewBootNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := recover(); got != "httpd: BootDeps.Table is nil" {
			t.Errorf("panic %v", got)
		}
	}()
	_, _ = httpd.NewBoot(httpd.BootConfig{}, httpd.BootDeps{})
}

// TestBootServerLimits feeds headers that are too large or never end.
func TestBootServerLimits(t *testing.T) {
	t.Parallel()
	w := newBootServer(t, httpd.Limits{}, nil)
	req, err := http.NewRequest(http.MethodGet, w.url("/files/x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s", resp.Status)
	}
}
