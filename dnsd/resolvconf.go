package dnsd

import (
	"crypto/x509"
	"errors"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
)

// An upstream is a server that questions are forwarded to. It is comparable, and the same after a reload.
type upstream struct {
	addr netip.AddrPort
	tls  string // the name that its certificate must have; empty: UDP and TCP
	ca   string // the file of its authorities; empty: the system's
}

// String returns the address and, of a server that is asked over TLS, its name.
func (u upstream) String() string {
	if u.tls == "" {
		return u.addr.String()
	}
	return u.addr.String() + "#" + u.tls
}

// upstreams returns the servers of a forwarding rule. What cannot be read is a warning, and a server of the rule less.
func (b *builder) upstreams(key string, list []lab.NameServer, readFile ReadFile) (servers []upstream) {
	for _, n := range list {
		switch {
		case n.File != "":
			servers = append(servers, b.fromResolvConf(key, n, readFile)...)
		case n.CAFile == "" || b.readRoots(key, n, readFile):
			servers = append(servers, upstream{addr: n.Addr, tls: n.TLS, ca: n.CAFile})
		}
	}
	return servers
}

// fromResolvConf returns the servers that a file names, without this appliance itself.
func (b *builder) fromResolvConf(key string, n lab.NameServer, readFile ReadFile) (servers []upstream) {
	b.t.files = append(b.t.files, n.File)
	text, err := readOptional(n.File, readFile)
	if err != nil {
		b.t.warnings.Addf(n.Pos, key, "no server of it is asked: %v", err)
		return nil
	}
	own := 0
	for _, addr := range lab.NameServers(text) {
		if b.t.lab.AnswersDNS(addr) {
			own++
			continue
		}
		servers = append(servers, upstream{addr: addr})
	}
	if len(servers) == 0 && own > 0 {
		b.t.warnings.Addf(n.Pos, key, "%s names only this appliance itself: no server of it is asked", n.File)
	} else if len(servers) == 0 {
		b.t.warnings.Addf(n.Pos, key, "%s names no server", n.File)
	}
	return servers
}

// readRoots reads the authorities of a server.
func (b *builder) readRoots(key string, n lab.NameServer, readFile ReadFile) bool {
	b.t.files = append(b.t.files, n.CAFile)
	text, err := readOptional(n.CAFile, readFile)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New(n.CAFile + " has no certificate")
	}
	if err != nil {
		b.t.warnings.Addf(n.Pos, key, "%s is not asked: %v", n, err)
		return false
	}
	if b.t.roots == nil {
		b.t.roots = map[string]*x509.CertPool{}
	}
	b.t.roots[n.CAFile] = pool
	return true
}

func readOptional(path string, readFile ReadFile) ([]byte, error) {
	if readFile == nil {
		return nil, errors.New("files are not read here")
	}
	return readFile(path, "")
}
