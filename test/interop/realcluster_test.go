package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

const (
	kubeapiVar = "BOOTLAB_INTEROP_KUBEAPI" // path of the API server of test/kubeapi
	partVar    = "BOOTLAB_INTEROP_PART"    // this process is a part of a cluster: one of parts
)

// parts are what this program is inside a machine's namespace.
var parts = map[string]func() error{"machine-config": runMachineConfig, "router": runRouter}

// buildKubeapi builds the API server, which takes minutes.
func buildKubeapi(path string) error {
	if os.Getenv("BOOTLAB_LONG") == "" {
		return nil
	}
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "kubeapi")
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the API server: %w\n%s", err, out)
	}
	return os.Setenv(kubeapiVar, path)
}

// runMachineConfig serves as OpenShift's machine-config server does: by TLS, to clients that accept Ignition alone, and with 5xx until it is
// ready (machine-config-operator, pkg/server/api.go).
func runMachineConfig() error {
	ready := time.Now().Add(5 * time.Second)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(ready) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/config/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case time.Now().Before(ready):
			w.WriteHeader(http.StatusInternalServerError)
		case !strings.Contains(r.Header.Get("Accept"), "application/vnd.coreos.ignition+json"):
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ignition":{"version":"3.4.0"}}`)
		}
	})
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":22623")
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(mux)
	_ = s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	select {} // until it is killed
}

// runRouter answers as an ingress router does.
func runRouter() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", func(http.ResponseWriter, *http.Request) {})
	return (&http.Server{Addr: ":1936", Handler: mux, ReadHeaderTimeout: time.Minute}).ListenAndServe()
}

// A clientReport is what a client of the API saw: see test/kubeapi.
type clientReport struct {
	Requests, Retries, Failures int
	Created, Watched, Rewatches int
	Slowest                     time.Duration
	Last                        string
}

// part runs this program as a part of a cluster inside the machine.
func (m *machine) part(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return m.background(t, []string{partVar + "=" + name}, program)
}

// background starts a program inside the machine, which asks the appliance for names. It ends with the test.
func (m *machine) background(t *testing.T, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	resolver := filepath.Join(m.d.dir, "resolv.conf")
	writeFile(t, resolver, "nameserver "+m.d.addr+"\n")
	cmd := m.Command(context.Background(), "sh", append([]string{"-c", `mount --bind ` + resolver + ` /etc/resolv.conf && exec "$@"`, "sh", name}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	log := &output{}
	cmd.Stderr = log
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s in %s:\n%s", filepath.Base(name), m.Name, tail(log.String()))
		}
	})
	return cmd
}

func begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// TestRealCluster brings a cluster of real parts up from one lab file: three etcd that find each other by our SRV records, Kubernetes' API
// server behind the balancer on an address that the daemon holds, a machine-config server, a router. All the while a client of client-go writes
// and watches, through the end of the bootstrap, a reload and a restart. libvirt's dnsmasq and a resolver on 127.0.0.53 run beside it.
func TestRealCluster(t *testing.T) {
	if os.Getenv("BOOTLAB_LONG") == "" {
		t.Skip("builds Kubernetes' API server, which takes minutes: BOOTLAB_LONG=1")
	}
	netns.Need(t, "etcd", "etcdctl", "dnsmasq")
	l := newCluster(t, "10.90.78", false)
	l.more = "clusters:\n  prod: {kind: openshift, address: NET.5, etcd_srv: true}\n"
	l.write()
	beside(t)
	d := start(t, l)
	machines := map[string]*machine{}
	for i, name := range []string{"boot", "cp0", "cp1", "cp2", "work"} {
		m := d.machine(t, fmt.Sprintf("52:54:00:00:00:2%d", i))
		if addr, want := m.lease(t), fmt.Sprintf("%s.2%d", d.net, i); addr != want {
			t.Fatalf("%s has %q, want %s", name, addr, want)
		}
		machines[name] = m
	}
	if out, err := d.bootlab("up", "--yes", "--detach", "prod"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	members := []string{"cp0", "cp1", "cp2"}
	var etcds []string
	for i, name := range members {
		begin(t, machines[name].etcd(t, i))
		etcds = append(etcds, fmt.Sprintf("http://%s.2%d:2379", d.net, i+1))
	}
	waitUntil(t, "etcd has a leader", func() bool {
		out, err := machines["cp0"].run("etcdctl", "--endpoints="+strings.Join(etcds, ","), "endpoint", "health")
		return err == nil && strings.Count(out, "is healthy") == 3
	}, d.log)
	d.done("boot", "cp0", "cp1", "cp2")

	bootstrap := machines["boot"].kubeapi(t, etcds)
	begin(t, bootstrap)
	begin(t, machines["boot"].part(t, "machine-config"))
	d.until("the bootstrap serves", func() bool { return d.stage("boot") == "serving" })

	client := machines["work"].background(t, nil, os.Getenv(kubeapiVar), "client", "https://api.prod.lab.test:6443")
	var report bytes.Buffer
	client.Stdout = &report
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, client)
	for _, name := range members {
		begin(t, machines[name].kubeapi(t, etcds))
		begin(t, machines[name].part(t, "machine-config"))
		d.until(name+" serves", func() bool { return d.stage(name) == "serving" })
	}
	fetchIgnition(t, machines["work"])
	_ = bootstrap.Process.Signal(syscall.SIGTERM) // as when it is complete
	d.until("the bootstrap is removed", func() bool { return !d.cluster().BootstrapRemoved.IsZero() })
	d.done("work")
	begin(t, machines["work"].part(t, "router"))
	d.until("the cluster is ready", func() bool { return d.cluster().Phase == api.ClusterReady })

	_ = bootstrap.Wait() // it closes its connections, and with them perhaps the watch
	connections := func() (n int64) {
		bs, err := d.client.Balancers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bs {
			if b.Name == "prod-api" {
				n = b.Connections
			}
		}
		return n
	}
	d.until("the client is connected", func() bool { return connections() > 0 })
	before := connections()
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if after := connections(); after < before {
		t.Errorf("%d of %d connections of the client are left after a reload", after, before)
	}
	d.signal(syscall.SIGTERM)
	d.exit(time.Minute)
	d.start()
	d.until("the client goes on after a restart", func() bool { return connections() > 0 })
	time.Sleep(3 * time.Second) // of the client's work
	_ = stdin.Close()
	if err := client.Wait(); err != nil {
		t.Fatal(err)
	}
	var r clientReport
	if err := json.Unmarshal(report.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, report.String())
	}
	t.Logf("the client: %+v", r)
	if r.Failures > 0 || r.Created < 100 || r.Watched != r.Created {
		t.Errorf("the client saw %+v: want no failure, and every object watched", r)
	}
}

// beside runs libvirt's default network and a resolver on 127.0.0.53 beside the daemon.
func beside(t *testing.T) {
	t.Helper()
	netns.Run(t, "ip", "link", "add", "virbr0", "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "virbr0").Run() })
	netns.Run(t, "ip", "addr", "add", "192.168.122.1/24", "dev", "virbr0")
	netns.Run(t, "ip", "link", "set", "virbr0", "up")
	netns.LibvirtDnsmasq(t, "virbr0")
	resolver := exec.Command("dnsmasq", "-k", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--listen-address=127.0.0.53", "--bind-interfaces", "--user=root", "--pid-file="+filepath.Join(t.TempDir(), "pid"))
	begin(t, resolver)
	t.Cleanup(func() { _ = resolver.Process.Kill(); _ = resolver.Wait() })
}

// etcd is the member of the control-plane machine i. It finds the others by the SRV records of the cluster.
func (m *machine) etcd(t *testing.T, i int) *exec.Cmd {
	t.Helper()
	addr, name := fmt.Sprintf("%s.2%d", m.d.net, i+1), fmt.Sprintf("cp%d", i)
	return m.background(t, nil, "etcd", "--name", name, "--data-dir", filepath.Join(t.TempDir(), name), "--discovery-srv", "prod.lab.test", "--peer-auto-tls",
		"--initial-advertise-peer-urls", "https://"+name+".prod.lab.test:2380", "--listen-peer-urls", "https://"+addr+":2380",
		"--listen-client-urls", "http://"+addr+":2379", "--advertise-client-urls", "http://"+addr+":2379", "--initial-cluster-state", "new", "--log-level", "warn")
}

// kubeapi is an API server of Kubernetes. As OpenShift's does, it answers for some seconds after /readyz says no.
func (m *machine) kubeapi(t *testing.T, etcds []string) *exec.Cmd {
	t.Helper()
	return m.background(t, nil, os.Getenv(kubeapiVar), "--etcd-servers", strings.Join(etcds, ","), "--secure-port", "6443", "--cert-dir", t.TempDir(),
		"--shutdown-delay-duration", "15s")
}

// fetchIgnition fetches a config as Ignition does, through the balancer.
func fetchIgnition(t *testing.T, m *machine) {
	t.Helper()
	accept := "Accept: application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1"
	waitUntil(t, "Ignition has its config", func() bool {
		out, err := m.run("curl", "-sSk", "-m", "20", "-H", accept, "--resolve", "api-int.prod.lab.test:22623:"+m.d.net+".5", "https://api-int.prod.lab.test:22623/config/worker")
		return err == nil && strings.Contains(out, `"version":"3.4.0"`)
	}, m.d.log)
}

// runPart runs the part that the environment names, if any.
func runPart() {
	name := os.Getenv(partVar)
	run := parts[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "%q is no part of a cluster: want one of %v\n", name, slices.Sorted(maps.Keys(parts)))
		os.Exit(2)
	}
	if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
