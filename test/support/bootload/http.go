package bootload

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"
)

// A connection is one that is kept open for several requests, as iPXE's is.
type connection struct {
	conn   *net.TCPConn
	reader *bufio.Reader
	host   string
}

func (c *connection) close() {
	if c != nil {
		_ = c.conn.Close()
	}
}

// dial opens a connection from the machine's own address. It ends with ctx.
func (w *walk) dial(ctx context.Context, host string) (*connection, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.addr, 0))}
	conn, err := d.DialContext(ctx, "tcp4", host)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return &connection{conn: conn.(*net.TCPConn), reader: bufio.NewReader(conn), host: host}, nil
}

// ask sends a GET and returns the answer's head; its body is still to be read.
func (c *connection) ask(path, agent string) (*http.Response, error) {
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nConnection: keep-alive\r\n\r\n", path, c.host, agent); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK || answer.ContentLength < 0 {
		return nil, fmt.Errorf("%s, length %d", answer.Status, answer.ContentLength)
	}
	return answer, nil
}

// text fetches what is small.
func (w *walk) text(ctx context.Context, c **connection, from, agent string) (string, error) {
	answer, err := w.get(ctx, c, from, agent)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", from, err)
	}
	return string(body), nil
}

// get asks over a connection that is there, or is made.
func (w *walk) get(ctx context.Context, c **connection, from, agent string) (*http.Response, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, err
	}
	if *c == nil || (*c).host != u.Host {
		(*c).close()
		if *c, err = w.dial(ctx, u.Host); err != nil {
			return nil, fmt.Errorf("get %s: %w", from, err)
		}
	}
	answer, err := (*c).ask(u.RequestURI(), agent)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", from, err)
	}
	return answer, nil
}

// file fetches what is big, and drops it.
func (w *walk) file(ctx context.Context, from string, want int64) error {
	answer, err := w.get(ctx, &w.http, from, agentIPXE)
	if err != nil {
		return err
	}
	if answer.ContentLength != want {
		return fmt.Errorf("%s has %d bytes, want %d", from, answer.ContentLength, want)
	}
	early, _ := w.http.reader.Discard(int(min(want, int64(w.http.reader.Buffered()))))
	got, err := drop(w.http.conn, want-int64(early), w.sink)
	w.bytes += int64(early) + got
	if err != nil {
		return fmt.Errorf("get %s, after %d bytes: %w", from, int64(early)+got, err)
	}
	return nil
}

// drop reads n bytes and leaves them in the kernel (MSG_TRUNC, see tcp(7)).
func drop(c *net.TCPConn, n int64, sink []byte) (got int64, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	for got < n && err == nil {
		var read int
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			read, _, failed = unix.Recvfrom(int(fd), sink[:min(n-got, int64(len(sink)))], unix.MSG_TRUNC)
			return failed != unix.EAGAIN
		})
		if err == nil {
			err = failed
		}
		if err == nil && read == 0 {
			err = io.ErrUnexpectedEOF
		}
		got += int64(max(read, 0))
	}
	return got, err
}

// What calls itself how.
const (
	agentIPXE      = "iPXE/1.21.1"
	agentInstaller = "debian-installer"
)

// A script is a parsed iPXE script.
type script struct{ kernel, initrd, config, done string }

// parseScript reads the commands kernel and initrd of an iPXE script, and the URLs among the kernel's arguments.
func parseScript(text string) (s script, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "kernel":
			s.kernel = firstURL(words)
			for _, w := range words {
				name, value, _ := strings.Cut(w, "=")
				switch name {
				case "config":
					s.config = value
				case "done":
					s.done = value
				}
			}
		case "initrd":
			s.initrd = firstURL(words)
		}
	}
	if s.kernel == "" || s.initrd == "" || s.config == "" || s.done == "" {
		return s, fmt.Errorf("the script names no kernel, initrd, config=URL and done=URL: %.300q", text)
	}
	return s, nil
}

func firstURL(words []string) string {
	for _, w := range words {
		if strings.HasPrefix(w, "http://") {
			return w
		}
	}
	return ""
}

func (w *walk) fetchScript(ctx context.Context) error {
	text, err := w.text(ctx, &w.http, w.lease.file, agentIPXE)
	if err != nil {
		return err
	}
	w.script, err = parseScript(text)
	return err
}

func (w *walk) kernel(ctx context.Context) error { return w.file(ctx, w.script.kernel, w.sizes.Kernel) }
func (w *walk) initrd(ctx context.Context) error { return w.file(ctx, w.script.initrd, w.sizes.Initrd) }

// document is fetched by the installer, over a connection of its own. It must have a line
// address=… of the machine: it is made for it alone.
func (w *walk) document(ctx context.Context) error {
	w.http.close() // the kernel has taken over
	w.http = nil
	var own *connection
	defer func() { own.close() }()
	text, err := w.text(ctx, &own, w.script.config, agentInstaller)
	if want := "address=" + w.addr.String() + "\n"; err == nil && !strings.Contains(text, want) {
		err = fmt.Errorf("the document lacks %q: %.300q", want, text)
	}
	return err
}

func (w *walk) done(ctx context.Context) error {
	var own *connection
	defer func() { own.close() }()
	_, err := w.text(ctx, &own, w.script.done, agentInstaller)
	return err
}
