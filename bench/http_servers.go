package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// An httpServer is a candidate. Below dir it may write; all serve the folder root, and the script.
type httpServer struct {
	candidate
	files  string // the path of public/ there
	script string // the path of the rendered script there
	args   func(binary, dir, root string) ([]string, error)
}

const (
	imageName  = "image" // below public/
	smallName  = "small"
	scriptName = "boot.ipxe" // the same bytes that bootlab renders
	benchHost  = "bench-host-1"
	benchMAC   = "52-54-00-00-00-01"
)

// httpServers are all candidates, bootlab first: the others are compared with it.
func httpServers() []*httpServer {
	return []*httpServer{
		{candidate: candidate{name: bootlabName}, files: "/files/public", script: "/boot/" + benchMAC + "/boot.ipxe", args: bootlabHTTP},
		{candidate: candidate{name: "nginx", program: "nginx"}, files: "/public", script: "/public/" + scriptName, args: nginxHTTP},
		{candidate: candidate{name: "net/http"}, files: "/public", script: "/script", args: plainHTTP},
		{candidate: candidate{name: "template", only: []string{"document"}}, files: "/public", script: "/rendered", args: plainHTTP},
	}
}

func bootlabHTTP(binary, dir, root string) ([]string, error) {
	text := fmt.Sprintf(`version: 1
lab: bench
domain: test
appliance: {state: state, admin_socket: admin.sock, user: root, files: %q, http: "%s:80", tftp: "127.0.0.1:69", dns: "127.0.0.1:53"}
networks: {n: {subnet: 10.97.0.0/24, address: %s, dhcp: off}}
profiles: {rescue: {kernel: public/small, initrd: [public/image], args: [console=ttyS0, "host={{.Host.Name}}"], install: never}}
hosts: {%s: {mac: %s, ip: %s, profile: rescue}}
`, root, httpAddr, httpAddr, benchHost, benchMAC, httpLoadAddr)
	path := filepath.Join(dir, "lab.yaml")
	return []string{binary, "serve", "--log-level", "warn", "--lab", path}, os.WriteFile(path, []byte(text), 0o644)
}

// nginxHTTP is one worker with what Debian's configuration says of sending files, and no access log: bootlab's is off, too.
func nginxHTTP(_, dir, root string) ([]string, error) {
	text := fmt.Sprintf(`user root; daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
 sendfile on; tcp_nopush on; keepalive_requests 1000000000; access_log off; default_type application/octet-stream;
 client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
 server { listen %[2]s:80; root %[3]s; }
}
`, dir, httpAddr, root)
	path := filepath.Join(dir, "nginx.conf")
	return []string{"nginx", "-c", path, "-e", filepath.Join(dir, "error.log")}, os.WriteFile(path, []byte(text), 0o644)
}

// plainCommand is the argument that makes this program the plainest web server that Go's library makes.
const plainCommand = "http-plain"

func plainHTTP(_, _, root string) ([]string, error) {
	self, err := os.Executable()
	return []string{self, plainCommand, root}, err
}

// runPlain serves files by http.ServeContent, and the script from memory or from a template, which is executed for each request.
func runPlain(ctx context.Context) error {
	root := flag.Arg(1)
	script, err := os.ReadFile(filepath.Join(root, "public", scriptName))
	if err != nil {
		return err
	}
	rendered, err := template.New("").Parse(strings.ReplaceAll(string(script), benchHost, "{{.Host.Name}}"))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/script", func(w http.ResponseWriter, _ *http.Request) { plainScript(w, script) })
	mux.HandleFunc("/rendered", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if err := rendered.Execute(&b, struct{ Host struct{ Name string } }{struct{ Name string }{benchHost}}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		plainScript(w, b.Bytes())
	})
	mux.Handle("/public/", http.FileServer(http.Dir(root)))
	s := &http.Server{Addr: httpAddr + ":80", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	return s.ListenAndServe()
}

func plainScript(w http.ResponseWriter, script []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(script)
}

// sameScript reports whether a candidate hands out the bytes that bootlab rendered.
func (r *httpRig) sameScript(got []byte) error {
	want, err := os.ReadFile(filepath.Join(r.root, "public", scriptName))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("the script differs: %d bytes, want %d", len(got), len(want))
	}
	return err
}
