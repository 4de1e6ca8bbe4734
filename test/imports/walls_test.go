package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A wall says what one package may import of ours. Test support (testOnly) may be imported by tests alone.
type wall struct {
	pkg    string
	may    []string
	reason string
}

// servers is what every server may see: the lab that it compiles, the bus it tells, the paths it may serve.
var servers = []string{"internal/lab", "internal/observe/event"}

// rooms is the plan of the house. Arrows only point from a package to what stands in `may`.
var rooms = []wall{
	{"cmd/bootlab", []string{"internal/daemon", "internal/firmware", "internal/api", "internal/lab", "internal/lab/load", "internal/daemon/plan", "internal/daemon/snapshot", "internal/observe/timeline", "internal/observe/event", "internal/observe/logs", "internal/content/images"}, "a table of contents: it asks the daemon or the lab, never a server"},
	{"internal/daemon", []string{"*"}, "the composition: alone in knowing all servers"},
	{"internal/daemon/snapshot", []string{"dhcpd", "tftpd", "dnsd", "httpd", "lbproxy", "virt", "internal/boot", "internal/lab", "internal/boot/files"}, "compiles the lab for every server"},
	{"internal/daemon/plan", []string{"internal/daemon/snapshot", "internal/lab", "dhcpd"}, "prints what the servers answer from; dhcpd says which boot file goes to which firmware"},

	{"dhcpd", append(servers, "internal/boot/bootloop", "internal/host/pause", "internal/store", "dhcpd/segment", "dhcpd/wire", "dhcpd/leases"), "keeps the lease book; knows no other server"},
	{"dhcpd/segment", []string{"internal/lab", "internal/host/pause"}, "sockets and frames; of the lab only how a MAC is written"},
	{"dhcpd/leases", []string{"internal/lab", "internal/store"}, "who has which address, durably; of the lab only what a MAC is"},
	{"dhcpd/wire", []string{"internal/lab"}, "bytes; of the lab only how a MAC, a route and an option are written"},
	{"tftpd", append(servers, "internal/host/datagram", "internal/host/pause", "internal/boot/files"), "knows no other server"},
	{"dnsd", append(servers, "internal/host/datagram", "internal/host/pause"), "asks for leases through an interface of its own"},
	{"httpd", append(servers, "internal/boot/files", "internal/boot", "internal/api", "internal/content/mirror", "internal/host/connlimit"), "serves what the desk says; knows no other server"},
	{"lbproxy", append(servers, "internal/host/pause"), "knows no other server"},
	{"virt", servers, "knows no other server"},

	{"internal/boot", []string{"internal/boot/bootloop", "internal/lab", "internal/observe/event", "internal/boot/install", "internal/boot/recipe", "internal/boot/discovered"}, "joins who, when and how; knows no server"},
	{"internal/boot/bootloop", []string{"internal/lab"}, "counts; of the lab only what a MAC is"},
	{"internal/boot/syntax", []string{"internal/lab/load"}, "what documents must look like; of the loader only its reader of YAML"},
	{"internal/boot/recipe", []string{"internal/lab", "internal/boot/syntax"}, "writes scripts and documents; knows no state"},
	{"internal/boot/install", []string{"internal/lab", "internal/observe/event", "internal/store"}, "a state machine; renders nothing"},
	{"internal/boot/discovered", []string{"internal/lab", "internal/store"}, "what strangers told; of the lab only what a MAC is"},
	{"internal/bmc", []string{"internal/lab"}, "controllers of machines; knows no server"},
	{"internal/observe/timeline", []string{"internal/lab", "internal/observe/event", "internal/store"}, "a recorder"},
	{"internal/observe/metrics", []string{"internal/observe/event"}, "a recorder"},
	{"internal/observe/logs", []string{"internal/observe/event"}, "a recorder"},
	{"internal/api", []string{"internal/observe/event", "internal/lab"}, "the admin plane's words, shared by server and client"},
	{"internal/boot/files", []string{"internal/boot/recipe", "internal/lab"}, "one rule for TFTP and HTTP; paths are rendered as the boot script renders them"},
	{"internal/content/images", []string{"internal/lab", "internal/host/pause"}, "fetches files; of the lab only what an image is"},
	{"internal/content/mirror", []string{"internal/lab", "internal/observe/event", "internal/host/pause"}, "keeps files of archives; of the lab only what a mirror is"},
	{"internal/observe/event", []string{"internal/lab"}, "news; every room may tell them"},
	{"internal/store/bolt", []string{"internal/store"}, "one store"},
	{"internal/store", nil, "knows none of what it stores"},
	{"internal/lab", nil, "the model: every decision, no file, no server, no socket"},
	{"internal/lab/load", []string{"internal/lab"}, "reads the lab file into the model; only commands, the daemon and readers of YAML need it"},
	{"internal/firmware", nil, "bytes"},
	{"internal/firmware/kpxe", nil, "changes bytes where they are fetched; the daemon never does"},
	{"internal/host/datagram", nil, "system calls for batches of datagrams; of the operating system alone"},
	{"internal/host/connlimit", nil, "counts connections; opens and closes none"},
	{"internal/host/pause", nil, "a clock and a context"},
	{"internal/host/privilege", nil, "of the operating system alone"},
	{"internal/host/portowner", nil, "of the operating system alone"},
}

// owners are the wire libraries and the one package that may import each: what they get wrong is mended in one place.
var owners = map[string]string{
	"github.com/insomniacslk/dhcp":   "dhcpd",
	"github.com/miekg/dns":           "dnsd",
	"github.com/pin/tftp":            "tftpd",
	"libvirt.org/go/libvirt":         "virt",
	"github.com/pires/go-proxyproto": "lbproxy",
	"go.etcd.io/bbolt":               "internal/store/bolt",
	"go.yaml.in/yaml":                "internal/lab/load",
	"github.com/coreos/butane":       "internal/boot/syntax",
	"github.com/coreos/ignition":     "internal/boot/syntax",
}

const module = "github.com/bootlab/bootlab/"

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) (ps []goPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags", "libvirt_dlopen", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return ps
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.ImportPath, module+"test/") { // tests may see everything
			ps = append(ps, p)
		}
	}
}

func TestWalls(t *testing.T) {
	t.Parallel()
	table := map[string]wall{}
	for _, w := range rooms {
		table[module+w.pkg] = w
	}
	ps := packages(t)
	if len(ps) < len(rooms)/2 {
		t.Fatalf("go list found %d packages: the test does not see the house", len(ps))
	}
	for _, p := range ps {
		w, ok := table[p.ImportPath]
		if !ok {
			t.Errorf("%s is not in the table of walls: say what it may import, and why", p.ImportPath)
			continue
		}
		delete(table, p.ImportPath)
		w.check(t, p)
	}
	for name := range table {
		t.Errorf("%s stands in the table of walls, but is no package", name)
	}
}

func (w wall) check(t *testing.T, p goPackage) {
	t.Helper()
	for _, imported := range p.Imports {
		if ours, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(w.may, "*") && !slices.Contains(w.may, ours) {
			t.Errorf("%s imports %s, but %s", w.pkg, ours, w.reason)
		}
		for library, owner := range owners {
			if w.pkg != owner && (imported == library || strings.HasPrefix(imported, library+"/")) {
				t.Errorf("%s imports %s, which only %s may", w.pkg, imported, owner)
			}
		}
	}
}
