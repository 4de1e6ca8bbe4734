package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// An apiServer answers /readyz as a Kubernetes API server does, and the machine-config server's /healthz.
func apiServer(t *testing.T, addr string) (stop func()) {
	t.Helper()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	servers := []*httptest.Server{tlsServer(t, net.JoinHostPort(addr, "6443"), ok), tlsServer(t, net.JoinHostPort(addr, "22623"), ok)}
	stop = func() {
		for _, s := range servers {
			s.CloseClientConnections()
			s.Close()
		}
	}
	t.Cleanup(stop)
	return stop
}

// tlsServer serves by TLS at an address, and asks clients for a certificate.
func tlsServer(t *testing.T, addr string, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handle)
	_ = s.Listener.Close()
	s.Listener, s.TLS = l, &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	return s
}

// router answers for the health of an ingress router.
func router(t *testing.T, addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(addr, "1936"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

// newCluster writes a lab with a bare-metal cluster: a bootstrap machine, three of the control plane, a worker. Their addresses are the tests',
// if they are to be here.
func newCluster(t *testing.T, subnet string, here bool) *labFile {
	t.Helper()
	l := newLab(t, subnet)
	l.hosts = `  boot: {mac: "52:54:00:00:00:20", ip: NET.20, cluster: prod, role: bootstrap, profile: install}
  cp0: {mac: "52:54:00:00:00:21", ip: NET.21, cluster: prod, role: master, profile: install}
  cp1: {mac: "52:54:00:00:00:22", ip: NET.22, cluster: prod, role: master, profile: install}
  cp2: {mac: "52:54:00:00:00:23", ip: NET.23, cluster: prod, role: master, profile: install}
  work: {mac: "52:54:00:00:00:24", ip: NET.24, cluster: prod, role: worker, profile: install}
`
	l.more = "clusters:\n  prod: {kind: openshift, address: NET.5}\n"
	for _, role := range []string{"master", "bootstrap", "control-plane"} {
		l.file("files/ignition/"+role+".ign", []byte(`{"ignition":{"version":"3.3.0"}}`))
	}
	l.write()
	for _, last := range []string{".20", ".21", ".22", ".23", ".24"} {
		if !here {
			break
		}
		netns.Run(t, "ip", "addr", "add", subnet+last+"/24", "dev", l.seg.Bridge)
	}
	return l
}

// cluster returns the only cluster of the lab.
func (d *daemon) cluster() api.Cluster {
	d.t.Helper()
	cs, err := d.client.Clusters(d.t.Context())
	if err != nil || len(cs) != 1 {
		d.t.Fatalf("clusters %+v, %v", cs, err)
	}
	return cs[0]
}

func (d *daemon) stage(host string) string {
	d.t.Helper()
	for _, m := range d.cluster().Machines {
		if m.Host == host {
			return m.Stage
		}
	}
	return ""
}

// done marks hosts as installed, as their installers would.
func (d *daemon) done(hosts ...string) {
	d.t.Helper()
	for _, h := range hosts {
		if _, err := d.client.MarkInstalled(d.t.Context(), h); err != nil {
			d.t.Fatal(err)
		}
	}
}

// states returns the states of a backend in all balancers that have it.
func (d *daemon) states(backend string) (states []api.BackendState) {
	d.t.Helper()
	bs, err := d.client.Balancers(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, b := range bs {
		for _, m := range b.Backends {
			if m.Name == backend {
				states = append(states, m.State)
			}
		}
	}
	return states
}

// TestClusterUp follows a bare-metal cluster from nothing to ready, as its machines would bring it there: the bootstrap machine serves first,
// then the control plane, the bootstrap is removed and stays away over a restart, and comes back once it is armed.
func TestClusterUp(t *testing.T) {
	t.Parallel()
	netns.Need(t, "script")
	d := start(t, newCluster(t, "10.90.77", true))
	if out, err := d.bootlab("up", "prod"); err == nil || !strings.Contains(out, "5 machines") || !strings.Contains(out, "/dev/vda") || !strings.Contains(out, "--yes") {
		t.Errorf("up without a terminal: %v\n%s", err, out)
	}
	if out := d.terminal("no", "up", "prod"); !strings.Contains(out, "boot /dev/vda, cp0 /dev/vda") || !strings.Contains(out, "Bring prod up? [y/N]") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("up, answered by no:\n%s", out)
	}
	if cl := d.cluster(); cl.Phase != "down" || !cl.Up.IsZero() {
		t.Errorf("before: %+v", cl)
	}
	// On a terminal one table is drawn over and over: on a busy machine, in more time.
	netns.Tries(t, 4, func(i int) string {
		after := fmt.Sprint(time.Duration(3*i*i) * time.Second)
		out := d.terminal("yes", "up", "--timeout", after, "prod")
		if strings.Count(out, "MACHINE  ROLE") < 2 || !strings.Contains(out, "\x1b[") || !strings.Contains(out, "prod is not ready after "+after+": it waits for the control plane: 0 of 3 machines serve") {
			return fmt.Sprintf("up on a terminal:\n%q", out)
		}
		return ""
	})
	if out, err := d.bootlab("up", "--yes", "--detach", "prod"); err != nil || !strings.Contains(out, "no bmc") {
		t.Errorf("up: %v\n%s", err, out)
	}
	if cl := d.cluster(); cl.Phase != "bootstrapping" || d.stage("work") != "waiting" || len(cl.Stuck()) != 4 {
		t.Errorf("up: %+v", cl)
	}

	d.done("boot", "cp0", "cp1", "cp2")
	stopBootstrap := apiServer(t, d.net+".20")
	d.until("the bootstrap serves", func() bool { return d.stage("boot") == "serving" })
	d.until("its machine configuration too", func() bool { return !slices.Contains(d.states("boot"), "new") })
	for last, want := range map[string]bool{".21": true, ".24": false} { // a machine of the control plane, and the worker
		out, err := exec.Command("curl", "-sk", "-m", "20", "--interface", d.net+last, "https://"+d.net+".5:22623/config/x").CombinedOutput()
		if (err == nil) != want {
			t.Errorf("machine configuration of the bootstrap for %s: %v, %s", last, err, out)
		}
	}
	apiServer(t, d.net+".21")
	d.until("cp0 serves", func() bool { return d.stage("cp0") == "serving" })
	if cl := d.cluster(); cl.Phase != "bootstrapping" || !strings.Contains(cl.Waits, "1 of 3") {
		t.Errorf("one of three serves: %+v", cl)
	}
	apiServer(t, d.net+".22")
	d.until("the control plane serves", func() bool { return d.cluster().Phase == "joining" })
	if got := d.stage("boot"); got != "serving" {
		t.Errorf("the bootstrap is %s while it serves", got)
	}
	apiServer(t, d.net+".23")

	stopBootstrap()
	d.until("the bootstrap is removed", func() bool { return d.stage("boot") == "gone" && !d.cluster().BootstrapRemoved.IsZero() })
	if got := d.states("boot"); !slices.Equal(got, []api.BackendState{api.BackendDrained, api.BackendDrained}) {
		t.Errorf("its backends: %v", got)
	}
	before := d.cluster()
	d.logged("bootstrap_removed") // kill -9 loses the last lines
	d.kill()
	d.start()
	if d.stage("boot") != "gone" || !slices.Equal(d.states("boot"), []api.BackendState{api.BackendDrained, api.BackendDrained}) || d.cluster().Up.IsZero() {
		t.Errorf("after a restart: %v, %+v", d.states("boot"), d.cluster())
	}

	d.until("stages and phase are as old as before the restart", func() bool {
		after := d.cluster()
		return after.Since.Equal(before.Since) && slices.EqualFunc(after.Machines, before.Machines, func(x, y api.ClusterMachine) bool { return x.Stage == y.Stage && x.Since.Equal(y.Since) })
	})

	// The worker joins. The command that watches ends by itself.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch := d.command(ctx, "up", "--yes", "--json", "prod")
	watched := make(chan []byte, 1)
	go func() { out, _ := watch.Output(); watched <- out }()
	d.done("work")
	router(t, d.net+".24")
	d.until("the cluster is ready", func() bool { cl := d.cluster(); return cl.Phase == api.ClusterReady && cl.Up.IsZero() })
	lines := strings.Split(strings.TrimSpace(string(<-watched)), "\n")
	var last api.Cluster
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Phase != api.ClusterReady || watch.ProcessState.ExitCode() != 0 {
		t.Errorf("up --json ended with %v: %v\n%s", watch.ProcessState, err, lines[len(lines)-1])
	}
	d.logged("cluster_ready")
	if n := strings.Count(d.log.String(), "bootstrap_removed"); n != 1 {
		t.Errorf("bootstrap_removed is logged %d times", n)
	}

	if _, err := d.client.Install(t.Context(), "boot", api.CycleLater); err != nil {
		t.Fatal(err)
	}
	d.until("an armed bootstrap is back", func() bool {
		return !slices.ContainsFunc(d.states("boot"), api.BackendState.Drained) && d.cluster().BootstrapRemoved.IsZero()
	})
}

// TestBootstrapConfigMap: with a kubeconfig the bootstrap machine is removed when the cluster's ConfigMap says so, while it still serves and its
// checks pass. The API servers want a client certificate.
func TestBootstrapConfigMap(t *testing.T) {
	t.Parallel()
	l := newCluster(t, "10.90.79", true)
	var complete atomic.Bool
	configMap := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/api/v1/namespaces/kube-system/configmaps/bootstrap":
			_, _ = io.WriteString(w, "ok")
		case len(r.TLS.PeerCertificates) == 0:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","message":"configmaps \"bootstrap\" is forbidden: User \"system:anonymous\" cannot get","reason":"Forbidden","code":403}`)
		case complete.Load():
			_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"bootstrap","namespace":"kube-system"},"data":{"status":"complete"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","message":"configmaps \"bootstrap\" not found","reason":"NotFound","code":404}`)
		}
	}
	var server *httptest.Server
	for _, last := range []string{".20", ".21", ".22", ".23"} {
		server = tlsServer(t, "10.90.79"+last+":6443", configMap)
		t.Cleanup(server.Close)
	}
	kubeconfig(t, l, server)
	d := start(t, l)
	d.done("boot", "cp0", "cp1", "cp2", "work")
	d.until("the bootstrap and the control plane serve", func() bool { return d.stage("boot") == "serving" && d.cluster().Serving == 3 })
	if cl := d.cluster(); !cl.BootstrapRemoved.IsZero() {
		t.Errorf("it left before it was complete: %+v", cl)
	}
	complete.Store(true)
	d.until("the bootstrap is removed", func() bool { return d.stage("boot") == "gone" && !d.cluster().BootstrapRemoved.IsZero() })
	if got := d.states("boot"); !slices.Equal(got, []api.BackendState{api.BackendDrained, api.BackendDrained}) {
		t.Errorf("its backends: %v", got)
	}
	d.logged("bootstrap_removed")
	if strings.Contains(d.log.String(), "forbidden") {
		t.Error("it asked without its certificate")
	}
}

// kubeconfig writes a kubeconfig as openshift-install does, with a client certificate, and names it in the lab.
func kubeconfig(t *testing.T, l *labFile, s *httptest.Server) {
	t.Helper()
	pair := s.TLS.Certificates[0] // any will do
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	l.file("auth/kubeconfig", []byte(`clusters: [{name: prod, cluster: {server: 'https://api.prod.lab.test:6443', tls-server-name: example.com, certificate-authority-data: `+encode("CERTIFICATE", pair.Certificate[0])+`}}]
contexts: [{name: admin, context: {cluster: prod, user: admin}}]
current-context: admin
kind: Config
users: [{name: admin, user: {client-certificate-data: `+encode("CERTIFICATE", pair.Certificate[0])+`, client-key-data: `+encode("PRIVATE KEY", key)+`}}]
`))
	l.more = strings.Replace(l.more, "kind: openshift", "kind: openshift, kubeconfig: auth/kubeconfig", 1)
	l.write()
}

// TestUpWithoutBootstrap: up refuses an OpenShift cluster whose control plane would wait for a bootstrap machine for ever: there is none, or it
// has left. With the machines armed, or installed, it goes on.
func TestUpWithoutBootstrap(t *testing.T) {
	t.Parallel()
	l := newCluster(t, "10.127.5", false)
	with := l.hosts
	_, l.hosts, _ = strings.Cut(with, "\n")
	l.write()
	d := start(t, l)
	if out, _ := d.bootlab("check"); !strings.Contains(out, "no host has role bootstrap") {
		t.Errorf("check:\n%s", out)
	}
	if out, err := d.bootlab("up", "--yes", "--detach", "prod"); err == nil || !strings.Contains(out, "no bootstrap machine") || !strings.Contains(out, "role: bootstrap") || !d.cluster().Up.IsZero() {
		t.Errorf("up: %v\n%s", err, out)
	}
	d.done("cp0", "cp1", "cp2")
	if out, err := d.bootlab("up", "--yes", "--detach", "prod"); err != nil {
		t.Errorf("up of installed machines: %v\n%s", err, out)
	}
	before := d.cluster()
	if out, err := d.bootlab("down", "--yes", "prod"); err != nil || before.Up.IsZero() || !d.cluster().Up.IsZero() {
		t.Errorf("down: %v\n%s", err, out)
	}
}

// TestSingleNodeUp: api and api-int of a single-node cluster, whose address is the node's own, lead to the bootstrap machine while it serves,
// and to the node once the bootstrap was removed, over a restart too; no line of the lab file changes.
func TestSingleNodeUp(t *testing.T) {
	netns.Need(t, "dig", "curl")
	t.Parallel()
	l := newLab(t, "10.125.2")
	l.hosts = `  boot: {mac: "52:54:00:00:00:20", ip: NET.20, cluster: sno, role: bootstrap, profile: install}
  node: {mac: "52:54:00:00:00:21", ip: NET.21, cluster: sno, role: master, profile: install}
`
	l.more = "clusters:\n  sno: {kind: openshift, address: NET.21}\n"
	for _, role := range []string{"master", "bootstrap"} {
		l.file("files/ignition/"+role+".ign", []byte(`{"ignition":{"version":"3.3.0"}}`))
	}
	l.write()
	for _, last := range []string{".20", ".21"} {
		netns.Run(t, "ip", "addr", "add", "10.125.2"+last+"/24", "dev", l.seg.Bridge)
	}
	d := start(t, l)
	leads := func(what, to string) {
		t.Helper()
		for _, name := range []string{"api.sno.lab.test", "api-int.sno.lab.test"} {
			d.until(name+" "+what, func() bool { return d.dig(name) == d.net+to })
		}
	}
	leads("is the appliance's before anything serves", ".1")
	if out, err := d.bootlab("up", "--yes", "--detach", "sno"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	d.done("boot", "node")
	stopBootstrap := apiServer(t, d.net+".20")
	config := func() error {
		return exec.Command("curl", "-skf", "-m", "20", "--interface", d.net+".21", "--connect-to", "::"+d.dig("api-int.sno.lab.test")+":22623", "https://api-int.sno.lab.test:22623/config/master").Run()
	}
	d.until("the node gets its machine configuration from the bootstrap by api-int", func() bool { return config() == nil })
	leads("is the appliance's while the bootstrap serves", ".1")

	apiServer(t, d.net+".21")
	router(t, d.net+".21")
	d.until("the node serves", func() bool { return d.stage("node") == "serving" })
	stopBootstrap()
	d.until("the bootstrap is removed", func() bool { return d.stage("boot") == "gone" && !d.cluster().BootstrapRemoved.IsZero() })
	leads("is the node's after that", ".21")
	d.until("the cluster is ready", func() bool { return d.cluster().Phase == api.ClusterReady })
	d.kill()
	d.start()
	leads("is the node's after a restart", ".21")
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	leads("is the node's after a reload", ".21")
	if _, err := d.client.Install(t.Context(), "boot", api.CycleLater); err != nil {
		t.Fatal(err)
	}
	leads("is the appliance's when the bootstrap is armed again", ".1")
}
