package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// A rule says what one package may import of ours.
type rule struct {
	pkg    string
	may    []string // packages; anything: all
	reason string
}

// anything permits every import.
const anything = "*"

// rules are in the order of the folders.
var rules = []rule{
	{"cmd/bootlab", []string{"internal/api", "internal/api/leasefile", "internal/content/clusterconfig", "internal/content/images", "internal/daemon", "internal/daemon/doctor", "internal/daemon/interfaces", "internal/daemon/plan", "internal/daemon/snapshot", "internal/daemon/statefile", "internal/firmware", "internal/host/link/links", "internal/host/file/regular", "internal/host/file/replace", "internal/lab", "internal/lab/importer", "internal/lab/load", "internal/observe/consolelog", "internal/observe/event", "internal/observe/logs", "internal/observe/machine", "internal/observe/timeline", "internal/store/backup"}, "the command line asks the daemon or the lab, never a server"},

	{"dhcpd", []string{"dhcpd/leases", "dhcpd/segment", "dhcpd/wire", "internal/boot/bootloop", "internal/firmware", "internal/host/socket/datagram", "internal/host/link/links", "internal/host/pause", "internal/host/required", "internal/lab", "internal/observe/event", "internal/observe/panics"}, "assigns addresses; knows no other server, and of boot programs only their names"},
	{"dhcpd/leases", []string{"internal/lab", "internal/store"}, "who has which address, durably; of the lab only what a MAC is"},
	{"dhcpd/segment", []string{"internal/host/link/arp", "internal/host/socket/datagram", "internal/host/link/links", "internal/host/link/nd", "internal/host/link/packet", "internal/host/pause", "internal/host/required", "internal/lab"}, "sockets and frames; of the lab only how a MAC is written"},
	{"dhcpd/wire", []string{"internal/lab"}, "packets; of the lab only how a MAC, a route and an option are written"},
	{"tftpd", []string{"internal/boot", "internal/boot/files", "internal/host/client/connlimit", "internal/host/socket/datagram", "internal/host/link/neighbour", "internal/host/pause", "internal/host/required", "internal/lab", "internal/observe/event", "internal/observe/panics"}, "serves the scripts of the boot service; of neighbours only who sent a request; knows no other server"},
	{"dnsd", []string{"internal/host/client/connlimit", "internal/host/socket/datagram", "internal/host/pause", "internal/host/required", "internal/lab", "internal/observe/panics"}, "asks for leases through an interface of its own"},
	{"httpd", []string{"internal/api", "internal/boot", "internal/boot/files", "internal/content/mirror", "internal/host/client/connlimit", "internal/host/client/hostheader", "internal/host/client/logins", "internal/host/file/replace", "internal/host/required", "internal/host/client/webserver", "internal/lab", "internal/observe/consolelog", "internal/observe/event", "internal/observe/panics"}, "serves what the boot service answers; knows no other server"},
	{"lbproxy", []string{"internal/host/client/clientaddr", "internal/host/client/connlimit", "internal/host/socket/datagram", "internal/host/socket/dnsprobe", "internal/host/socket/freebind", "internal/host/file/freshfile", "internal/host/link/links", "internal/host/pause", "internal/host/file/regular", "internal/host/required", "internal/host/socket/sockaddr", "internal/lab", "internal/observe/event", "internal/observe/panics", "lbproxy/h1"}, "knows no other server"},
	{"lbproxy/h1", nil, "messages as bytes; knows no connection, backend or lab"},
	{"virt", []string{"internal/content/iso", "internal/host/process/confine", "internal/host/process/privilege", "internal/host/required", "internal/lab", "internal/observe/event", "internal/observe/panics", "internal/store"}, "knows no other server; the process of a hypervisor confines itself; iso writes seeds of cloud-init; of the store only that its disk hangs"},

	{"internal/api", []string{"internal/lab", "internal/observe/event"}, "the types of the admin API, shared by server and client"},
	{"internal/api/leasefile", []string{"internal/api", "internal/lab"}, "formats of lease files; decides nothing"},
	{"internal/power", []string{"internal/host/file/regular", "internal/lab"}, "power control of bare metal; knows no server"},

	{"internal/boot", []string{"internal/boot/bootloop", "internal/boot/discovered", "internal/boot/install", "internal/boot/recipe", "internal/host/link/neighbour", "internal/host/file/regular", "internal/host/required", "internal/lab", "internal/observe/event", "internal/store"}, "decides what a machine boots; knows no server; of the store only that its disk hangs"},
	{"internal/boot/bootloop", []string{"internal/lab"}, "counts; of the lab only what a MAC is"},
	{"internal/boot/discovered", []string{"internal/host/required", "internal/lab", "internal/store"}, "what unknown machines reported; of the lab only what a MAC is"},
	{"internal/boot/files", []string{"internal/boot/recipe", "internal/host/file/regular", "internal/lab", "internal/observe/event"}, "which files may be fetched, for TFTP and HTTP; paths are rendered as the boot script renders them"},
	{"internal/boot/install", []string{"internal/host/required", "internal/lab", "internal/observe/event", "internal/store"}, "a state machine; renders nothing"},
	{"internal/boot/recipe", []string{"internal/boot/install", "internal/boot/syntax", "internal/lab"}, "renders scripts and documents; of install only the completion signals"},
	{"internal/boot/syntax", []string{"internal/lab/load"}, "validates documents; of the loader only its reader of YAML"},

	{"internal/content/images", []string{"internal/host/pause", "internal/host/file/regular", "internal/host/file/replace", "internal/lab"}, "downloads files; of the lab only what an image is"},
	{"internal/content/iso", nil, "writes images; knows no server"},
	{"internal/content/clusterconfig", []string{"internal/host/file/regular", "internal/lab", "internal/lab/load"}, "compares the installers' files with a lab; of the loader only its reader of YAML"},
	{"internal/content/mirror", []string{"internal/host/socket/outbound", "internal/host/pause", "internal/host/file/replace", "internal/host/required", "internal/lab", "internal/observe/event"}, "caches files of archives; of the lab only what a mirror is"},

	{"internal/content/unpack", []string{"internal/host/file/replace"}, "unpacks files; knows no server"},

	{"internal/daemon", []string{anything}, "the composition: alone in knowing all servers"},
	{"internal/daemon/adoption", []string{"dhcpd/leases", "internal/api", "internal/boot/discovered", "internal/lab", "internal/observe/event", "internal/observe/timeline"}, "compares what is known of machines with the lab; of DHCP only leases"},
	{"internal/daemon/cluster", []string{"internal/boot/install", "internal/lab", "internal/observe/machine", "internal/observe/timeline"}, "decides how a cluster comes up; observes nothing and does nothing"},
	{"internal/daemon/completion", []string{"internal/daemon/cluster", "internal/host/file/freshfile", "internal/host/file/regular", "internal/lab", "internal/lab/load"}, "asks API servers; of the loader only its reader of kubeconfigs"},
	{"internal/daemon/diskhealth", []string{"internal/api", "internal/host/file/regular", "internal/lab", "internal/observe/metrics", "internal/store/logfile"}, "looks at folders, files and the disk of a store; knows nothing that it stores"},
	{"internal/daemon/doctor", []string{"dhcpd/segment", "internal/api", "internal/daemon/diskhealth", "internal/daemon/interfaces", "internal/host/socket/dnsprobe", "internal/host/socket/neterror", "internal/host/socket/portowner", "internal/host/file/regular", "internal/host/link/vip", "internal/lab"}, "looks at this machine and changes nothing; knows no server, and of DHCP only how to find another one"},
	{"internal/daemon/health", []string{"dhcpd/segment", "internal/api", "internal/host/process/descriptors", "internal/host/link/links", "internal/lab", "internal/observe/metrics"}, "records what happens to servers; of DHCP only why an interface cannot be served"},
	{"internal/daemon/interfaces", []string{"dhcpd/segment", "internal/host/link/links", "internal/host/link/vip", "internal/lab"}, "asks the kernel about a lab; of DHCP only why an interface cannot be served"},
	{"internal/daemon/leaseadmin", []string{"dhcpd", "dhcpd/leases", "internal/api", "internal/api/leasefile", "internal/lab"}, "lists leases, and gives those of another server to the DHCP server; of lease files only how a client id is written"},
	{"internal/daemon/media", []string{"internal/api/redfish", "internal/host/socket/outbound", "internal/lab", "internal/observe/panics", "virt"}, "downloads into virt; knows no other server"},
	{"internal/daemon/plan", []string{"dhcpd", "internal/daemon/snapshot", "internal/firmware", "internal/lab"}, "prints what the servers answer from; dhcpd says which boot file goes to which firmware"},
	{"internal/daemon/ports", []string{"internal/api", "internal/host/socket/freebind", "internal/host/socket/portowner"}, "listens; asks another daemon only whether it stops"},
	{"internal/daemon/privileges", []string{"internal/boot", "internal/daemon/doctor", "internal/daemon/statefile", "internal/host/process/confine", "internal/host/process/privilege", "internal/host/file/regular", "internal/lab", "internal/lab/load", "internal/store/identity"}, "what the process of the daemon may do; of boot only which documents a lab has, of the loader only which files a kubeconfig is made from"},
	{"internal/daemon/serverstate", []string{"dnsd", "internal/api", "internal/store", "internal/store/records", "virt"}, "stores what dnsd and virt give it; answers nothing"},
	{"internal/daemon/vips", []string{"dhcpd/leases", "internal/api", "internal/daemon/interfaces", "internal/host/link/vip", "internal/lab", "internal/observe/event", "internal/observe/metrics", "internal/store", "internal/store/records"}, "which addresses this machine holds; of DHCP only whose lease an address is"},
	{"internal/daemon/snapshot", []string{"dhcpd", "dnsd", "httpd", "internal/boot", "internal/boot/files", "internal/host/file/regular", "internal/lab", "lbproxy", "tftpd", "virt"}, "compiles the lab for every server"},
	{"internal/daemon/statefile", []string{"dhcpd/leases", "internal/api", "internal/boot/install", "internal/daemon/serverstate", "internal/lab", "internal/store", "internal/store/backup", "internal/store/identity", "internal/store/logfile"}, "opens the state and plans restores; of what is stored only how leases and installs are merged, and what a restore leaves out"},
	{"internal/daemon/vmadmin", []string{"internal/api", "internal/lab", "internal/observe/consolelog", "internal/observe/event", "internal/observe/machine", "internal/power", "virt"}, "puts what people ask of virtual machines to virt, and power to it or to controllers; knows no other server"},
	{"internal/daemon/watchdog", []string{"httpd", "internal/host/link/links", "tftpd"}, "asks servers as clients do; of HTTP and TFTP only the file that its self-test asks for"},
	{"internal/daemon/watch", []string{"internal/host/file/inotify", "internal/host/file/regular"}, "looks at files; reads no lab"},

	{"internal/firmware", nil, "files that are embedded"},

	{"internal/host/process/confine", nil, "asks the operating system alone"},
	{"internal/host/link/arp", []string{"internal/lab"}, "packets; of the lab only what a MAC is"},
	{"internal/host/client/clientaddr", nil, "a rule about addresses"},
	{"internal/host/client/connlimit", []string{"internal/host/client/clientaddr"}, "counts connections; opens and closes none"},
	{"internal/host/socket/datagram", []string{"internal/host/socket/sockaddr"}, "system calls for batches of datagrams"},
	{"internal/host/socket/dnsprobe", nil, "one question; knows no server of ours"},
	{"internal/host/link/nd", []string{"internal/host/link/packet", "internal/lab"}, "packets, and their checksum; of the lab only what a MAC is"},
	{"internal/host/link/neighbour", []string{"internal/host/link/arp", "internal/host/link/nd", "internal/host/link/packet", "internal/host/link/rtnetlink", "internal/lab"}, "asks the kernel and the segment; of the lab only what a MAC is"},
	{"internal/host/process/descriptors", nil, "asks the operating system alone"},
	{"internal/host/socket/freebind", nil, "asks the operating system alone"},
	{"internal/host/file/freshfile", []string{"internal/host/file/regular", "internal/lab"}, "reads files again when they change; of the lab only where the key of a certificate is"},
	{"internal/host/socket/handover", nil, "asks systemd alone"},
	{"internal/host/client/hostheader", []string{"internal/host/link/links", "internal/lab"}, "looks at a request; of the lab only the names and addresses of the appliance"},
	{"internal/host/file/inotify", nil, "asks the operating system alone"},
	{"internal/host/link/links", nil, "asks the operating system alone"},
	{"internal/host/client/logins", []string{"internal/host/client/clientaddr"}, "counts tries; knows no password"},
	{"internal/host/process/memory", nil, "asks the operating system alone"},
	{"internal/host/socket/outbound", nil, "requests to servers outside; who uses it says which addresses are allowed"},
	{"internal/host/link/packet", nil, "asks the operating system alone"},
	{"internal/host/pause", nil, "a clock and a context"},
	{"internal/host/socket/neterror", nil, "words for errors of the standard library"},
	{"internal/host/socket/portowner", nil, "asks the operating system alone"},
	{"internal/host/process/privilege", nil, "asks the operating system alone"},
	{"internal/host/file/regular", nil, "reads files that an admin names"},
	{"internal/host/file/replace", nil, "writes files whole or not at all"},
	{"internal/host/required", nil, "fields of structs"},
	{"internal/host/link/rtnetlink", nil, "asks the operating system alone"},
	{"internal/host/socket/sockaddr", nil, "the layout of addresses in system calls"},
	{"internal/host/link/vip", []string{"internal/host/link/arp", "internal/host/link/links", "internal/host/link/nd", "internal/host/link/packet", "internal/host/process/privilege", "internal/host/link/rtnetlink", "internal/lab"}, "asks the kernel and the segment; of the lab only what a MAC is"},
	{"internal/host/client/webserver", []string{"internal/host/client/connlimit"}, "connections of HTTP; knows no path and no answer"},

	{"internal/lab", nil, "the model: every decision, no file, no server, no socket"},
	{"internal/lab/importer", []string{"internal/host/file/regular", "internal/lab"}, "reads other servers' files; the loader that it is given is the judge of the result"},
	{"internal/lab/load", []string{"internal/host/file/regular", "internal/lab"}, "reads the lab file into the model; only commands, the daemon and readers of YAML need it"},

	{"internal/observe/consolelog", []string{"internal/host/required"}, "files and texts; opens no console"},
	{"internal/observe/diagnosis", []string{"internal/boot/install", "internal/firmware", "internal/lab", "internal/observe/event", "internal/observe/machine", "internal/observe/timeline"}, "a pure function of boots; asks nobody; of the lab only what to do about another DHCP server, of the firmware the names of boot programs"},
	{"internal/observe/event", []string{"internal/lab", "internal/observe/repeats"}, "every package may record events"},
	{"internal/observe/logs", []string{"internal/lab", "internal/observe/event", "internal/observe/repeats"}, "a recorder of events, and the servers' log; of the lab only what a MAC is"},
	{"internal/observe/machine", []string{"internal/boot/install", "internal/lab", "internal/observe/event", "internal/observe/timeline"}, "a pure function of what was observed; asks nobody"},
	{"internal/observe/metrics", []string{"internal/observe/event"}, "a recorder of events"},
	{"internal/observe/panics", []string{"internal/host/pause"}, "counts and logs; knows no server"},
	{"internal/observe/repeats", []string{"internal/host/client/clientaddr"}, "counts what is alike; knows no event"},
	{"internal/observe/timeline", []string{"internal/host/required", "internal/lab", "internal/observe/event", "internal/store"}, "a recorder of events"},

	{"internal/api/redfish", []string{"internal/host/client/connlimit", "internal/host/client/hostheader", "internal/host/client/logins", "internal/host/file/regular", "internal/host/required", "internal/host/client/webserver", "internal/lab", "internal/observe/panics"}, "asks for machines through an interface of its own; knows no hypervisor and no other server"},

	{"internal/store", nil, "knows none of what it stores"},
	{"internal/store/backup", []string{"internal/store"}, "a file format; interprets no value"},
	{"internal/store/identity", []string{"internal/host/file/replace", "internal/store"}, "names a store; knows nothing else that it stores"},
	{"internal/store/logfile", []string{"internal/store"}, "one implementation of it"},
	{"internal/store/records", []string{"internal/store"}, "JSON below a prefix; knows no record"},
}

// wireLibraries are the libraries that one package alone may import, so that what they get wrong is worked around in one place.
var wireLibraries = map[string]string{
	"github.com/insomniacslk/dhcp":   "dhcpd",
	"github.com/miekg/dns":           "dnsd",
	"github.com/pin/tftp":            "tftpd",
	"libvirt.org/go/libvirt":         "virt",
	"github.com/beevik/etree":        "virt",
	"github.com/pires/go-proxyproto": "lbproxy",
	"github.com/tidwall/btree":       "internal/store/logfile",
	"go.yaml.in/yaml":                "internal/lab/load",
	"github.com/coreos/butane":       "internal/boot/syntax",
	"github.com/coreos/ignition":     "internal/boot/syntax",
	"github.com/ulikunitz/xz":        "internal/content/unpack",
	"github.com/landlock-lsm":        "internal/host/process/confine",
}

const (
	module = "github.com/bootlab/bootlab/"
	bench  = module + "bench" // the benchmarks, a module of its own
	tests  = module + "test/" // may import everything but bench
)

type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func packages(t *testing.T) (ps []goPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags", "libvirt_dlopen", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
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
		ps = append(ps, p)
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	left := map[string]rule{} // rules without a package yet
	for _, r := range rules {
		left[module+r.pkg] = r
	}
	ps := packages(t)
	if len(ps) < len(rules) {
		t.Fatalf("go list found %d packages, fewer than there are rules", len(ps))
	}
	for _, p := range ps {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if imported == bench || strings.HasPrefix(imported, bench+"/") {
				t.Errorf("%s imports %s: the benchmarks import the product, never the other way round", p.ImportPath, imported)
			}
		}
		if strings.HasPrefix(p.ImportPath, tests) {
			continue
		}
		r, ok := left[p.ImportPath]
		if !ok {
			t.Errorf("%s has no rule: say what it may import, and why", p.ImportPath)
			continue
		}
		delete(left, p.ImportPath)
		r.check(t, p.Imports)
	}
	for name := range left {
		t.Errorf("there is a rule for %s, which is no package", name)
	}
}

// TestWireLibraries: each is imported by its package, or by a test of it.
func TestWireLibraries(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[p.ImportPath] = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	}
	for library, owner := range wireLibraries {
		if !slices.ContainsFunc(imports[module+owner], func(i string) bool { return strings.HasPrefix(i+"/", library+"/") }) {
			t.Errorf("%s may import %s, but does not: remove the permission", owner, library)
		}
	}
}

// TestArchitecturePage: docs/architecture.md names every package.
func TestArchitecturePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		group, name := path.Split(r.pkg)
		if !slices.ContainsFunc([]string{r.pkg, "…/" + name, group + "…"}, func(n string) bool { return strings.Contains(string(page), "`"+n+"`") }) {
			t.Errorf("%s is not in docs/architecture.md", r.pkg)
		}
	}
}

// check holds that a package imports what its rule permits, and nothing else of ours.
func (r rule) check(t *testing.T, imports []string) {
	t.Helper()
	for _, imported := range imports {
		if ours, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(r.may, anything) && !slices.Contains(r.may, ours) {
			t.Errorf("%s imports %s, but %s", r.pkg, ours, r.reason)
		}
		for library, owner := range wireLibraries {
			if r.pkg != owner && (imported == library || strings.HasPrefix(imported, library+"/")) {
				t.Errorf("%s imports %s, which only %s may", r.pkg, imported, owner)
			}
		}
	}
	for _, may := range r.may {
		if may != anything && !slices.Contains(imports, module+may) {
			t.Errorf("%s may import %s, but does not: remove the permission", r.pkg, may)
		}
	}
}
