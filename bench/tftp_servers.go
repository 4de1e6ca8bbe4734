package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A tftpServer is a candidate. args may write below dir; all serve the folder root.
type tftpServer struct {
	candidate
	forks bool // its transfers are other processes, whose CPU time is not counted
	args  func(binary, dir, root string) ([]string, error)
}

// tftpServers are all candidates, bootlab first: the others are compared with it.
func tftpServers() []*tftpServer {
	return []*tftpServer{
		{candidate: candidate{name: bootlabName}, args: bootlabTFTP},
		{candidate: candidate{name: "dnsmasq", program: "dnsmasq"}, args: dnsmasqTFTP},
		{candidate: candidate{name: "hpa", program: "in.tftpd"}, forks: true, args: hpaTFTP},
		{candidate: candidate{name: "atftpd", program: unpacked}, args: atftpdTFTP},
	}
}

// unpacked is where test/deps.sh leaves atftpd, which cannot be installed beside tftpd-hpa.
const unpacked = ".cache/atftpd/usr/sbin/atftpd"

// tftpMost is how many transfers each candidate may have at once: 50 and 100 are the defaults of dnsmasq and atftpd.
const tftpMost = 1000

func bootlabTFTP(binary, dir, root string) ([]string, error) {
	text := fmt.Sprintf(`version: 1
lab: bench
domain: test
appliance: {state: state, admin_socket: admin.sock, user: root, files: %q, http: "127.0.0.1:8080", dns: "127.0.0.1:53"}
networks:
  near: {subnet: %s/24, interface: near1, address: %s, dhcp: off}
  far: {subnet: %s/24, interface: far1, address: %s, dhcp: off}
`, root, strings.TrimSuffix(nearAddr, "1")+"0", nearAddr, strings.TrimSuffix(farAddr, "1")+"0", farAddr)
	path := filepath.Join(dir, "lab.yaml")
	return []string{binary, "serve", "--lab", path}, os.WriteFile(path, []byte(text), 0o644)
}

func dnsmasqTFTP(_, dir, root string) ([]string, error) {
	return []string{
		"dnsmasq", "-k", "-C", "/dev/null", "--user=root", "--pid-file=", "--port=0", "--enable-tftp", "--tftp-root=" + root,
		fmt.Sprintf("--tftp-max=%d", tftpMost), "--log-facility=" + filepath.Join(dir, "dnsmasq.log"),
	}, nil
}

func hpaTFTP(_, _, root string) ([]string, error) {
	return []string{"in.tftpd", "-L", "-4", "-u", "root", "-s", root}, nil
}

func atftpdTFTP(_, dir, root string) ([]string, error) {
	program, err := filepath.Abs(unpacked)
	return []string{
		program, "--daemon", "--no-fork", "--user=root", fmt.Sprintf("--maxthread=%d", tftpMost), "--logfile=" + filepath.Join(dir, "atftpd.log"),
		"--verbose=3", root,
	}, err
}
