package importer

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

func (h *haproxy) bindParams(m *mapping, b proxyBind) {
	var certificates []string
	for i := 0; i < len(b.params); i++ {
		next := ""
		if i+1 < len(b.params) {
			next = b.params[i+1]
		}
		switch w := b.params[i]; w {
		case "crt":
			certificates = append(certificates, h.certificates(b, h.below("crt-base", next))...)
			i++
		case "accept-proxy":
			h.note(b.at, "accept_proxy needs the addresses of the peers: a PROXY header is not accepted until it is set")
		case "verify":
			if next != "none" {
				h.weaker(b.at, "clients' certificates are not verified")
			}
			i++
		case "crt-list":
			h.note(b.at, "crt-list is left out: write the certificates of its file as certificates")
			i++
		case "interface", "namespace":
			h.weaker(b.at, "%s is left out: it listens on every interface", w)
			i++
		case "strict-sni":
			h.weaker(b.at, "a client is not refused for a server name that no certificate has")
		case "tcp-ut":
			h.note(b.at, "tcp-ut is left out")
			i++
		case "maxconn":
			h.note(b.at, "max_connections is of all addresses of a balancer: set it")
			i++
		case "ciphers", "ciphersuites", "curves", "sigalgs":
			h.note(b.at, "%s: %s is left out", fixedTLS, w)
			i++
		case "alpn", "name", "ssl-min-ver", "ssl-max-ver", "backlog", "mode", "user", "group", "process", "thread", "npn", "ca-file", "ca-verify-file", "crl-file":
			i++
		}
	}
	if newestTLS(b.params) {
		h.weaker(b.at, oldTLS)
	}
	if slices.Contains(b.params, "ssl") {
		tls := m.under("tls", b.at)
		m.get("tls").needed = true
		if len(certificates) == 0 {
			h.note(b.at, "tls needs certificates")
		} else {
			tls.needList("certificates", b.at, certificates...)
		}
	}
}

// certificates returns the files of a crt: the file itself, or those of a folder as HAProxy loads them.
func (h *haproxy) certificates(b proxyBind, name string) []string {
	at := name
	if path.IsAbs(name) {
		at = h.sources.path(name, "")
	}
	files, err := h.sources.folder(at, func(file string) bool {
		return !slices.Contains([]string{".key", ".issuer", ".ocsp", ".sctl", ".dhparam"}, path.Ext(file))
	})
	switch {
	case err == nil && len(files) > 0:
		h.note(b.at, "the files that the folder has now are listed: add a new one to certificates")
		for i := range files {
			files[i] = path.Join(name, path.Base(files[i]))
		}
		return files
	case err == nil || strings.HasSuffix(name, "/"):
		why := "it has no certificate"
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			why = e.Err.Error()
		}
		stands := path.Join(name, "CERTIFICATE.pem")
		h.note(b.at, "the folder %s cannot be read here (%s): list its files as certificates, for which %s stands", name, why, stands)
		return []string{stands}
	}
	return []string{name}
}

func (h *haproxy) backendTLS(m *mapping, s proxyServer, h2 bool) {
	tls := m.under("backend_tls", s.at)
	m.get("backend_tls").needed = true
	if h2 {
		m.need("backend_protocol", s.at, "h2")
	}
	name := s.params["verifyhost"]
	if sni, ok := strings.CutPrefix(s.params["sni"], "str("); name == "" && ok {
		name = strings.TrimSuffix(sni, ")")
	} else if s.params["sni"] != "" && !ok {
		h.note(s.at, "sni %s is left out: the server name is one for all", s.params["sni"])
	}
	if name != "" {
		tls.set("name", s.at, name)
	}
	switch file := s.params["ca-file"]; {
	case !h.verifies(s):
		tls.set("verify", s.at, "off")
	case file != "" && file != "@system-ca":
		tls.need("ca_file", s.at, h.below("ca-base", file))
	}
	if s.params["crl-file"] != "" && h.verifies(s) {
		h.weaker(s.at, "crl-file is left out: a certificate that is revoked is accepted")
	}
}

// checkTLS sets how a check verifies the certificate of a server.
func (h *haproxy) checkTLS(c *mapping, s proxyServer) {
	if file := s.params["ca-file"]; file != "" && file != "@system-ca" && h.verifies(s) {
		c.set("ca_file", s.at, h.below("ca-base", file))
	}
	name := s.params["check-sni"]
	if sni, ok := strings.CutPrefix(s.params["sni"], "str("); name == "" && ok {
		name = strings.TrimSuffix(sni, ")")
	}
	if own := s.params["verifyhost"]; own != "" && c.get("ca_file") != nil {
		name = own
	}
	if name != "" {
		c.set("sni", s.at, name)
	}
}

// oneTLS notes servers whose certificates HAProxy verifies in another way than that of the server whose TLS all get.
func (h *haproxy) oneTLS(all []proxyServer, used proxyServer) {
	for _, s := range all {
		_, secure := s.params["ssl"]
		switch {
		case !secure || !h.verifies(used):
		case !h.verifies(s):
			h.note(s.at, "verify is one for all backends: this server is down unless its certificate is verified as that of %s:%d is", used.at.file, used.at.line)
		case s.params["ca-file"] != used.params["ca-file"]:
			h.note(s.at, "ca-file is one for all backends: that of %s:%d is used", used.at.file, used.at.line)
		}
	}
}

// newestTLS reports whether words of a bind line, a server or the global section refuse TLS before 1.3.
func newestTLS(words []string) bool {
	i := slices.Index(words, "ssl-min-ver")
	return slices.Contains(words, "force-tlsv13") || i >= 0 && i+1 < len(words) && words[i+1] == "TLSv1.3"
}

// global returns a setting of the global section, or "".
func (h *haproxy) global(name string) string {
	for _, s := range h.sections {
		if s.kind == "global" {
			if _, v, ok := s.value(name); ok && len(v) > 0 {
				return v[0]
			}
		}
	}
	return ""
}

// below returns the path of a file that is relative to a folder of the global section.
func (h *haproxy) below(base, file string) string {
	if dir := h.global(base); dir != "" && !path.IsAbs(file) && !strings.HasPrefix(file, "@") {
		return path.Join(dir, file)
	}
	return file
}

// verifies reports whether HAProxy verifies the certificate of a server: it does unless the file says no.
func (h *haproxy) verifies(s proxyServer) bool {
	if v, ok := s.params["verify"]; ok {
		return v != "none"
	}
	return h.global("ssl-server-verify") != "none"
}

// tlsServer returns the server whose TLS all backends of a balancer get: one that is verified, if one is. Nil: none has TLS.
func (h *haproxy) tlsServer(all []proxyServer) (found *proxyServer) {
	for i, s := range all {
		if _, secure := s.params["ssl"]; secure && (found == nil || h.verifies(s) && !h.verifies(*found)) {
			found = &all[i]
		}
	}
	return found
}
