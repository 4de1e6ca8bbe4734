package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// The ports of a balancer and of its backends.
const (
	lbPortTCP    = ":7001" // to lbBackend
	lbPortHTTP   = ":7002" // to lbBackend
	lbPortBulk   = ":7003" // to lbBackendBig, in TCP mode
	lbBackend    = lbLoadAddr + ":8001"
	lbBackendBig = lbLoadAddr + ":8002"
)

// An lbServer is a candidate. Below dir it may write.
type lbServer struct {
	candidate
	args func(binary, dir string) ([]string, error)
}

// lbServers are all candidates, bootlab first: the others are compared with it. All add the same X-Forwarded fields, log errors
// only, use idle connections to backends for every client, and have one thread.
func lbServers() []*lbServer {
	return []*lbServer{
		{candidate{name: bootlabName}, bootlabBalancer},
		{candidate{name: "haproxy", program: "haproxy"}, haproxyBalancer("")},
		{candidate{name: "haproxy-splice", program: "haproxy"}, haproxyBalancer(" option splice-request\n option splice-response\n")},
		{candidate{name: "nginx", program: "nginx"}, nginxBalancer},
	}
}

func bootlabBalancer(binary, dir string) ([]string, error) {
	text := fmt.Sprintf(`version: 1
lab: bench
domain: test
appliance: {state: state, admin_socket: admin.sock, files: ., addresses: off, http: "127.0.0.1:8080", tftp: off, dns: off}
networks: {n: {subnet: 10.99.0.0/16, address: %[1]s, dhcp: off}}
balancers:
  tcp: {listen: "%[1]s%[2]s", backends: ["%[5]s"]}
  web: {listen: "%[1]s%[3]s", mode: http, timeouts: {keepalive: 1h}, backends: ["%[5]s"]}
  bulk: {listen: "%[1]s%[4]s", backends: ["%[6]s"]}
`, lbAddr, lbPortTCP, lbPortHTTP, lbPortBulk, lbBackend, lbBackendBig)
	path := filepath.Join(dir, "lab.yaml")
	return []string{binary, "serve", "--log-level", "warn", "--lab", path}, os.WriteFile(path, []byte(text), 0o644)
}

func haproxyBalancer(option string) func(_, dir string) ([]string, error) {
	return func(_, dir string) ([]string, error) {
		text := fmt.Sprintf(`global
 nbthread 1
 maxconn 9000
 maxpipes 200
defaults
%[7]s timeout connect 5s
 timeout client 1h
 timeout server 1h
 timeout http-keep-alive 1h
listen tcp
 bind %[1]s%[2]s
 server a %[5]s check
listen web
 bind %[1]s%[3]s
 mode http
 http-reuse always
 option forwardfor
 http-request set-header X-Forwarded-Host %%[req.hdr(host)]
 http-request set-header X-Forwarded-Proto http
 server a %[5]s check
listen bulk
 bind %[1]s%[4]s
 server a %[6]s check
`, lbAddr, lbPortTCP, lbPortHTTP, lbPortBulk, lbBackend, lbBackendBig, option)
		path := filepath.Join(dir, "haproxy.cfg")
		return []string{"haproxy", "-db", "-f", path}, os.WriteFile(path, []byte(text), 0o644)
	}
}

func nginxBalancer(_, dir string) ([]string, error) {
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log; load_module %[2]s;
events { worker_connections 19000; }
stream {
 proxy_timeout 1h;
 server { listen %[3]s%[4]s; proxy_pass %[7]s; }
 server { listen %[3]s%[6]s; proxy_pass %[8]s; }
}
http {
 access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; tcp_nodelay on;
 client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
 upstream a { server %[7]s; keepalive 64; keepalive_requests 1000000000; }
 server {
  listen %[3]s%[5]s;
  location / {
   proxy_pass http://a; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
   proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Proto $scheme;
  }
 }
}
`, dir, nginxStream, lbAddr, lbPortTCP, lbPortHTTP, lbPortBulk, lbBackend, lbBackendBig)
	path := filepath.Join(dir, "nginx.conf")
	return []string{"nginx", "-c", path, "-e", filepath.Join(dir, "error.log")}, os.WriteFile(path, []byte(text), 0o644)
}

// nginxStream is where Debian's libnginx-mod-stream puts its module.
const nginxStream = "/usr/lib/nginx/modules/ngx_stream_module.so"
