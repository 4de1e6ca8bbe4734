package configs_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A medium is what an installer fetches beside its documents: what is there, and what it asks for in its order, each with the
// method and the status that it must get. What is missing must be 404: some of it is only looked for.
type medium struct {
	page  string
	files []string // below files/, where they hold their own name
	asks  []string // "METHOD status path"
}

func media() []medium {
	const live, leap, rocky, esxi, win = "images/rhcos-live-rootfs.x86_64.img", "media/leap15/", "media/rocky9/", "media/esxi8/", "media/win11/"
	return []medium{
		{"coreos", []string{live}, []string{"HEAD 200 " + live, "HEAD 200 " + live, "GET 200 " + live}}, // until it answers; with --fail; to a pipe
		{"anaconda",
			[]string{rocky + ".treeinfo", rocky + "images/install.img", rocky + "repodata/repomd.xml", rocky + "Packages/b/bash-5.1.x86_64.rpm"},
			[]string{
				"GET 200 " + rocky + ".treeinfo", "GET 200 " + rocky + "images/install.img", "GET 404 " + rocky + "images/updates.img",
				"GET 404 " + rocky + "images/product.img", "GET 200 " + rocky + "repodata/repomd.xml", "GET 200 " + rocky + "Packages/b/bash-5.1.x86_64.rpm",
			}},
		{"autoyast",
			[]string{leap + "media.1/products", leap + "boot/x86_64/config", leap + "boot/x86_64/root"},
			[]string{"GET 404 " + leap + "content", "GET 200 " + leap + "boot/x86_64/config", "GET 404 " + leap + "autoinst.xml", "GET 200 " + leap + "boot/x86_64/root"}},
		{"agama", []string{"leap16/Leap-16.0-online-installer-x86_64.install.iso"}, []string{"GET 200 leap16/Leap-16.0-online-installer-x86_64.install.iso"}},
		{"ubuntu", []string{"ubuntu/ubuntu-24.04-live-server-amd64.iso"}, []string{"GET 200 ubuntu/ubuntu-24.04-live-server-amd64.iso"}},
		{"harvester",
			[]string{"harvester/harvester-v1.6.0-rootfs-amd64.squashfs", "harvester/harvester-v1.6.0-amd64.iso"},
			[]string{"GET 200 harvester/harvester-v1.6.0-rootfs-amd64.squashfs", "GET 200 harvester/harvester-v1.6.0-amd64.iso"}},
		{"kairos", []string{"kairos/kairos.squashfs"}, []string{"GET 200 kairos/kairos.squashfs"}},
		// The medium has names in capitals; boot.cfg and wimboot ask in small letters.
		{"esxi", []string{esxi + "B.B00", esxi + "JUMPSTRT.GZ"}, []string{"GET 200 " + esxi + "b.b00", "GET 200 " + esxi + "jumpstrt.gz", "GET 404 " + esxi + "c.b00"}},
		{"windows", []string{win + "Sources/Boot.WIM"}, []string{"GET 200 " + win + "sources/boot.wim"}},
		{"proxmox", []string{"pve/proxmox-ve-auto.iso"}, []string{"GET 200 pve/proxmox-ve-auto.iso"}},
	}
}

// TestInstallersReadTheirMedia asks the real HTTP for what the installers of the pages fetch beside their documents.
func TestInstallersReadTheirMedia(t *testing.T) {
	t.Parallel()
	byName := map[string]page{}
	for _, p := range pages(t) {
		byName[p.name] = p
	}
	for _, m := range media() {
		t.Run(m.page, func(t *testing.T) {
			t.Parallel()
			l, table := byName[m.page].load(t)
			sizes := map[string]int{}
			for _, name := range m.files {
				file := filepath.Join(l.Appliance.Files, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
					t.Fatal(err)
				}
				sizes[strings.ToLower(name)] = len(name)
			}
			w := newBootServer(t, l, table)
			for _, ask := range m.asks {
				field := strings.Fields(ask)
				answer := w.do(field[0], "/files/"+field[2], "", nil)
				if got := strconv.Itoa(answer.Code); got != field[1] {
					t.Errorf("%s: status %s", ask, got)
				}
				if answer.Code != http.StatusOK {
					continue
				}
				size := sizes[strings.ToLower(field[2])]
				body := size
				if field[0] == http.MethodHead {
					body = 0
				}
				if got := answer.Header().Get("Content-Length"); got != strconv.Itoa(size) || answer.Body.Len() != body {
					t.Errorf("%s: Content-Length %s and %d bytes, want %d and %d", ask, got, answer.Body.Len(), size, body)
				}
			}
		})
	}
}
