package lbproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// runCheck runs one check. connected is how long the TCP connect took; 0: it failed.
func (s *Server) runCheck(ctx context.Context, k healthKey) (connected time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.check.Timeout)
	defer cancel()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer within %s: %w", k.check.Timeout, err)
		}
	}()
	target := k.addr
	if k.check.Port != 0 {
		target = netip.AddrPortFrom(k.addr.Addr(), k.check.Port)
	}
	start := time.Now()
	conn, err := s.deps.Dial(ctx, target)
	if err != nil {
		return 0, err
	}
	connected = time.Since(start)
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return connected, speak(ctx, conn, k, target)
}

// speak runs the check's protocol on conn.
func speak(ctx context.Context, conn net.Conn, k healthKey, target netip.AddrPort) error {
	if k.proxy != 0 {
		if err := writeProxyHeader(conn, k.proxy, netip.AddrPort{}, netip.AddrPort{}); err != nil {
			return err
		}
	}
	switch k.check.Kind {
	case lab.CheckTLS, lab.CheckHTTPS:
		// As HAProxy's "check-ssl verify none": no server name, any certificate. The check is for liveness.
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("tls handshake with %s: %w", target, err)
		}
		if k.check.Kind == lab.CheckHTTPS {
			return get(secure, k.check, target)
		}
	case lab.CheckHTTP:
		return get(conn, k.check, target)
	}
	return nil
}

// get requests the check's path and tests the status.
func get(conn net.Conn, c lab.Check, target netip.AddrPort) error {
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bootlab-check\r\nAccept: */*\r\nConnection: close\r\n\r\n", c.Path, target)
	if _, err := io.WriteString(conn, request); err != nil {
		return fmt.Errorf("GET %s on %s: %w", c.Path, target, err)
	}
	line, err := bufio.NewReaderSize(io.LimitReader(conn, 512), 512).ReadString('\n')
	if err != nil {
		return fmt.Errorf("GET %s on %s: read status: %w", c.Path, target, err)
	}
	status, err := statusOf(line)
	if err != nil {
		return fmt.Errorf("GET %s on %s: %w", c.Path, target, err)
	}
	switch {
	case c.Expect != 0 && status != c.Expect:
		return fmt.Errorf("GET %s on %s: status %d, want %d", c.Path, target, status, c.Expect)
	case c.Expect == 0 && (status < 200 || status > 399):
		return fmt.Errorf("GET %s on %s: status %d, want 2xx or 3xx", c.Path, target, status)
	}
	return nil
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
