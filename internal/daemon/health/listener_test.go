package health

import (
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A scriptedListener returns these errors from Accept, then blocks until it is closed.
type scriptedListener struct {
	net.Listener
	errs   []error
	closed chan struct{}
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *scriptedListener) Close() error { close(l.closed); return nil }

// TestAcceptErrorEnds: after too many open files an idle balancer serves again, also before its next connection.
func TestAcceptErrorEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:80"
		h := New()
		h.Started(LB)
		h.Opened(LB, addr, nil)
		since := time.Now()
		l := &observedListener{Listener: &scriptedListener{errs: []error{syscall.EMFILE, syscall.EMFILE}, closed: make(chan struct{})}, health: h, addr: addr, closed: func() {}}
		time.Sleep(time.Minute)
		for range 2 {
			if _, err := l.Accept(); err == nil {
				t.Fatal("no error")
			}
			if s := h.Server(LB, []string{addr}); s.Serving || s.Since.Sub(since) != time.Minute || s.Cause != syscall.EMFILE.Error() {
				t.Errorf("while Accept fails: %+v", s)
			}
			time.Sleep(time.Second) // the longest wait between two calls in lbproxy
		}
		done := make(chan struct{})
		go func() { defer close(done); _, _ = l.Accept() }()
		time.Sleep(5 * time.Second)
		if s := h.Server(LB, []string{addr}); !s.Serving || len(s.Addrs) != 1 || s.Err != "" {
			t.Errorf("Accept waits for a connection: %+v", s)
		}
		_ = l.Close()
		<-done
		if s := h.Server(LB, []string{addr}); s.Serving {
			t.Errorf("closed: %+v", s)
		}
	})
}
