package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// withRedfish adds a virtual machine and the Redfish service to the lab.
const withRedfish = `redfish:
  listen: 10.88.0.1:8443
  accounts:
    ironic: {password_file: redfish-password, role: operator}
  max_media: 1MiB
hypervisors:
  one: {uri: %q, bridges: {n: %s}, domain_type: qemu}
hosts:
  m1: {mac: "52:54:00:00:01:01", ip: 10.88.0.21, profile: p, vm: {hypervisor: one, cpus: 2, memory: 1GiB, disks: [1GiB]}}
`

// TestRedfishClients: clients that are not ours drive a virtual machine of a real libvirtd as they drive metal: sushy, which Ironic and
// metal3 use, and gofish. Both boot it from a virtual medium, once.
func TestRedfishClients(t *testing.T) {
	netns.Need(t, "curl", "/usr/bin/python3", "/usr/lib/python3/dist-packages/sushy")
	one := startLibvirtd(t, 6200)
	h := serve(t)
	text, err := os.ReadFile(h.lab)
	if err != nil {
		t.Fatal(err)
	}
	_, bridge, _ := strings.Cut(string(text), "interface: ")
	bridge, _, _ = strings.Cut(bridge, "\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(h.lab), "redfish-password"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := 64 << 10
		if strings.Contains(r.URL.Path, "large") {
			size = 2 << 20
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(bytes.Repeat([]byte{0}, size))
	}))
	_ = files.Listener.Close()
	if files.Listener, err = net.Listen("tcp", "10.88.0.1:0"); err != nil { // loopback is refused
		t.Fatal(err)
	}
	files.Start()
	defer files.Close()
	h.write(strings.Replace(string(text), "hosts:\n", fmt.Sprintf(withRedfish, one.URI, bridge), 1))
	h.until("reload", func() bool { return strings.Contains(h.run("status").out, "10.88.0.1:8443") })
	h.steps(step{args: "vm create m1", out: []string{"m1 is running"}}, step{args: "power off m1", out: []string{"m1 off"}})
	const url = "https://10.88.0.1:8443"
	certificate := filepath.Join(filepath.Dir(h.lab), "state", "redfish.pem")
	h.until("the service", func() bool { return exec.Command("curl", "-skf", url+"/redfish/v1/").Run() == nil })
	image := files.URL + "/boot.iso"

	out := netns.Run(t, "/usr/bin/python3", "../../test/redfish/client.py", url, certificate, "ironic", "s3cret", "m1", image)
	for _, want := range []string{
		"identity RootService systems ['m1']", "wrong password 401", "memory 1 cpus 2 arch x86", "nics ['52:54:00:00:01:01'] disks [1073741824]", "boot mode Legacy power Off chassis 1",
		"inserted True True ['CD', 'DVD']", "override Cd Once", "power On override Disabled", "mode 400 Base.1.16.PropertyValueNotInList",
		"nobody 404 Base.1.16.ResourceMissingAtURI", "at the end Off Pxe Continuous False",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("sushy: no %q in\n%s", want, out)
		}
	}
	h.steps(step{args: "power boot default m1", out: []string{"m1 default"}})

	client := filepath.Join(t.TempDir(), "redfish")
	build := exec.Command("go", "build", "-o", client, ".")
	build.Dir = "../../test/redfish"
	build.Env = append(os.Environ(), "GOFLAGS=") // the tags are those of another module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the client with gofish: %v\n%s", err, out)
	}
	out = netns.Run(t, client, url, "ironic", "s3cret", "m1", image)
	for _, want := range []string{"Off 52:54:00:00:01:01", "On On Disabled", "ForceRestart On Disabled", "ForceOff Off Disabled", "done"} {
		if !strings.Contains(out, want) {
			t.Errorf("gofish: no %q in\n%s", want, out)
		}
	}
	if out, err := exec.Command(client, url, "ironic", "s3cret", "m1", files.URL+"/large.iso").CombinedOutput(); err == nil || !strings.Contains(string(out), "more than redfish.max_media") {
		t.Errorf("an image that is too large: %v\n%s", err, out)
	}
	if left := netns.Run(t, "ls", one.Images); strings.Contains(left, "cd.iso") {
		t.Errorf("left in the pool: %s", left)
	}
}
