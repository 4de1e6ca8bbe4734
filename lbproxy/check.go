package lbproxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/host/file/regular"
	"github.com/bootlab/bootlab/internal/host/socket/dnsprobe"
	"github.com/bootlab/bootlab/internal/lab"
)

// runCheck runs one check. connected is how long the TCP connect took; 0: it failed.
func (s *Server) runCheck(ctx context.Context, k healthKey) (connected time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.check.Timeout)
	defer cancel()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = &noAnswer{k.check.Timeout, err}
		}
	}()
	target := k.addr
	if k.check.Port != 0 {
		target = netip.AddrPortFrom(k.addr.Addr(), k.check.Port)
	}
	if k.check.Kind == lab.CheckDNS {
		return 0, dnsprobe.Ask(ctx, target, k.check.Name, k.check.Timeout)
	}
	conn, connected, err := s.dialCheck(ctx, target, k.check.Timeout/(checkDials+1))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return connected, s.speak(ctx, conn, k, target)
}

// A noAnswer is that a check had no answer in time. The error below it says the same in other words.
type noAnswer struct {
	within time.Duration
	err    error
}

// Error implements error.
func (e *noAnswer) Error() string { return fmt.Sprintf("no answer within %s", e.within) }

// Unwrap returns the error of the call.
func (e *noAnswer) Unwrap() error { return e.err }

// checkDials is how many connects a check makes, so that a lost packet fails none: the kernel repeats it after a second only.
const checkDials = 3

// dialCheck connects for a check. After each pause without an answer it begins another connect beside the others; a refusal is an answer.
func (s *Server) dialCheck(ctx context.Context, target netip.AddrPort, pause time.Duration) (net.Conn, time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialResult, checkDials)
	dial := func() { results <- s.dial(ctx, nil, target) }
	go dial()
	again := time.NewTicker(max(pause, time.Millisecond))
	defer again.Stop()
	for dials := 1; ; {
		select {
		case <-again.C:
			if dials < checkDials {
				dials++
				go dial()
			}
		case first := <-results:
			cancel()
			for range dials - 1 {
				if late := <-results; late.conn != nil {
					_ = late.conn.Close()
				}
			}
			return first.conn, first.took, first.err
		}
	}
}

// speak runs the check's protocol on conn. Where requests use TLS, the check makes their handshake, unless it has TLS settings of its own.
func (s *Server) speak(ctx context.Context, conn net.Conn, k healthKey, target netip.AddrPort) error {
	if k.proxy != 0 {
		if err := writeProxyHeader(conn, k.proxy, netip.AddrPort{}, netip.AddrPort{}); err != nil {
			return err
		}
	}
	kind := k.check.Kind
	switch {
	case k.requests.On && k.check.CAFile == "" && k.check.SNI == "":
		secure, err := s.http.handshake(ctx, conn, k.requests, k.serverName)
		if err != nil {
			return fmt.Errorf("TLS with backend %s: %w", target, err)
		}
		conn = secure
	case kind == lab.CheckTLS, kind == lab.CheckHTTPS:
		config, err := tlsOf(k.check, target)
		if err != nil {
			return err
		}
		if k.requests.protocol == lab.BackendH2 {
			config.NextProtos = []string{"h2"}
		}
		first := &firstRecord{Conn: conn}
		secure := tls.Client(first, config)
		err = secure.HandshakeContext(ctx)
		switch {
		case kind == lab.CheckTLS && k.check.CAFile == "" && first.isTLS():
			return nil
		case err != nil:
			return fmt.Errorf("tls handshake with %s: %w", target, err)
		}
		conn = secure
	}
	if kind != lab.CheckHTTP && kind != lab.CheckHTTPS {
		return nil
	}
	ask := get
	if k.requests.protocol == lab.BackendH2 || k.requests.protocol == lab.BackendH2C && kind == lab.CheckHTTP {
		ask = getHTTP2
	}
	status, err := ask(ctx, conn, k.check, target)
	if err != nil {
		return fmt.Errorf("GET %s on %s: %w", k.check.Path, target, err)
	}
	if !k.check.Expect.Has(status) {
		return fmt.Errorf("GET %s on %s: status %d, want %s", k.check.Path, target, status, k.check.Expect)
	}
	return nil
}

// tlsOf returns the TLS configuration of a check. Without a CA file it is as HAProxy's "check-ssl verify none": the check is for
// liveness. The file is read each time, so that another one needs no reload.
func tlsOf(c lab.Check, target netip.AddrPort) (*tls.Config, error) {
	config := checkTLS.Clone()
	config.ServerName = c.SNI
	if c.CAFile == "" {
		return config, nil
	}
	var err error
	if config.RootCAs, err = regular.Authorities(c.CAFile); err != nil {
		return nil, &faultError{faultFile, fmt.Errorf("read ca_file of the check: %w", err)}
	}
	host, _, err := net.SplitHostPort(c.Host)
	if err != nil {
		host = c.Host
	}
	name := cmp.Or(c.SNI, host, target.Addr().String())
	config.VerifyConnection = func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: config.RootCAs, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}
	return config, nil
}

// checkTLS accepts what any server may choose: the check is no judgement on its security.
var checkTLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, CipherSuites: allCipherSuites()}

func allCipherSuites() (ids []uint16) {
	for _, c := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		ids = append(ids, c.ID)
	}
	return ids
}

// firstRecord keeps the start of what a server sends.
type firstRecord struct {
	net.Conn
	header [6]byte
	n      int
}

// Read implements net.Conn.
func (r *firstRecord) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.n += copy(r.header[r.n:], b[:n])
	return n, err
}

// isTLS reports whether the server speaks TLS: its first record is a ServerHello or an alert (RFC 8446 section 5.1), even
// if it wants another version, cipher suite or client certificate.
func (r *firstRecord) isTLS() bool {
	const alert, handshake, serverHello = 21, 22, 2
	return r.n == len(r.header) && r.header[1] == 3 && (r.header[0] == alert || r.header[0] == handshake && r.header[5] == serverHello)
}

// get requests the check's path in HTTP/1.1 and returns the status.
func get(_ context.Context, conn net.Conn, c lab.Check, target netip.AddrPort) (status int, err error) {
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bootlab-check\r\nAccept: */*\r\nConnection: close\r\n\r\n", c.Path, cmp.Or(c.Host, target.String()))
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, err
	}
	line, err := bufio.NewReaderSize(io.LimitReader(conn, 512), 512).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("read status: %w", err)
	}
	return statusOf(line)
}

// getHTTP2 is get in HTTP/2.
func getHTTP2(ctx context.Context, conn net.Conn, c lab.Check, target netip.AddrPort) (status int, err error) {
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true) // what TLS there is has begun
	once := connListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	once.conns <- conn
	transport := &http.Transport{Protocols: only, DisableCompression: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		defer func() { _ = once.Close() }() // nor is there another connection
		return once.Accept()
	}}
	defer transport.CloseIdleConnections()
	r := (&http.Request{
		Method: http.MethodGet, URL: urlOf(target.String(), c.Path), Host: cmp.Or(c.Host, target.String()),
		Header: http.Header{"User-Agent": {"bootlab-check"}, "Accept": {"*/*"}},
	}).WithContext(ctx)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// statusOf parses a status line (RFC 9112 section 4).
func statusOf(line string) (int, error) {
	version, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if !strings.HasPrefix(version, "HTTP/1.") || len(code) != 3 || err != nil {
		return 0, fmt.Errorf("%.40q is not a status line", line)
	}
	return status, nil
}
