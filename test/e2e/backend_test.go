package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A backend is a process in a namespace of its own that serves the ports of a node of its role.
type backend struct {
	name   string
	client *netns.Client
	cmd    *exec.Cmd
}

// newBackend starts a node with that address. Its server is the test binary.
func newBackend(t *testing.T, seg *netns.Segment, name, cidr string) *backend {
	t.Helper()
	b := &backend{name: name, client: seg.NewClient(t)}
	netns.Run(t, "ip", "-n", b.client.Name, "addr", "add", cidr, "dev", "eth0")
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *backend) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd = b.client.Command(t.Context(), self)
	b.cmd.Env = append(os.Environ(), backendVar+"="+b.name)
	b.cmd.Stderr = os.Stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (b *backend) stop() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// serveBackend serves the ports of an OpenShift node, by the role in its name, and answers every request with the name.
func serveBackend(name string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	errs := make(chan error)
	plain := func(port string) { errs <- http.ListenAndServe(":"+port, mux) }
	secure := func(port string) {
		s := &http.Server{Addr: ":" + port, Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
		errs <- s.ListenAndServeTLS("", "")
	}
	if strings.HasPrefix(name, "worker") {
		go plain("80")
		go plain("1936")
		go secure("443")
	} else {
		go secure("6443")
		go secure("22623")
	}
	fmt.Fprintln(os.Stderr, name, <-errs)
	os.Exit(1)
}

// certificate returns a self-signed certificate.
func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
