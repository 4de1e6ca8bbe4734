//go:build cgo && libvirt_dlopen

package virt

import (
	"errors"
	"io"
	"sync"
	"time"

	"libvirt.org/go/libvirt"
)

// Serial consoles have a process of their own for each hypervisor. It makes one call at a time as the other does, and what consoles
// write arrives in the goroutine of libvirt's event loop.

// A consoleStreams is the open consoles of a connection.
type consoleStreams struct {
	push func(consoleFrame) // may be called by several goroutines

	mu   sync.Mutex
	open map[string]*libvirt.Stream // by UUID
}

// maxConsoleChunk is how much of a console's output travels at once.
const maxConsoleChunk = 16 << 10

// consoleSendWait is how long a machine may take until there is room for what is typed.
const consoleSendWait = 2 * time.Second

// openConsoles begins to serve consoles. What they write goes to push.
func (c *libvirtConn) openConsoles(push func(consoleFrame)) {
	c.consoles = &consoleStreams{push: push, open: map[string]*libvirt.Stream{}}
	_, _ = c.c.DomainEventRebootRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain) { // without it resets are not seen
		if uuid, err := d.GetUUIDString(); err == nil {
			push(consoleFrame{UUID: uuid, Reset: true})
		}
	})
}

// openConsole opens the first console of a domain.
func (c *libvirtConn) openConsole(uuid string, take bool) error {
	s := c.consoles
	s.mu.Lock()
	open := s.open[uuid] != nil
	s.mu.Unlock()
	if open {
		return nil
	}
	d, err := c.c.LookupDomainByUUIDString(uuid)
	if err != nil {
		return plain(err)
	}
	defer func() { _ = d.Free() }()
	stream, err := c.c.NewStream(libvirt.STREAM_NONBLOCK)
	if err != nil {
		return plain(err)
	}
	flags := libvirt.DOMAIN_CONSOLE_SAFE
	if take {
		flags |= libvirt.DOMAIN_CONSOLE_FORCE
	}
	if err := d.OpenConsole("", stream, flags); err != nil {
		_ = stream.Free()
		return plain(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[uuid] = stream
	const events = libvirt.STREAM_EVENT_READABLE | libvirt.STREAM_EVENT_ERROR | libvirt.STREAM_EVENT_HANGUP
	err = stream.EventAddCallback(events, func(_ *libvirt.Stream, _ libvirt.StreamEventType) { s.read(uuid, stream) })
	if err != nil {
		s.forgetLocked(uuid, stream)
	}
	return plain(err)
}

// read sends on what a console wrote. libvirt calls it again while there is more.
func (s *consoleStreams) read(uuid string, stream *libvirt.Stream) {
	s.mu.Lock()
	if s.open[uuid] != stream {
		s.mu.Unlock()
		return
	}
	buf := make([]byte, maxConsoleChunk)
	n, err := stream.Recv(buf)
	ended := err != nil
	if ended {
		s.forgetLocked(uuid, stream)
	}
	s.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		s.push(consoleFrame{UUID: uuid, Ended: "the machine is off, or another program took its console"})
	case ended:
		s.push(consoleFrame{UUID: uuid, Ended: plain(err).Error()})
	case n > 0:
		s.push(consoleFrame{UUID: uuid, Output: buf[:n]})
	}
}

// forgetLocked ends a stream.
func (s *consoleStreams) forgetLocked(uuid string, stream *libvirt.Stream) {
	delete(s.open, uuid)
	_ = stream.EventRemoveCallback()
	_ = stream.Abort()
	_ = stream.Free()
}

// typeConsole sends input to a console that is open.
func (c *libvirtConn) typeConsole(uuid string, input []byte) error {
	s := c.consoles
	for deadline := time.Now().Add(consoleSendWait); len(input) > 0; {
		s.mu.Lock()
		stream := s.open[uuid]
		var n int
		err := errors.New("the console is not open")
		if stream != nil {
			n, err = stream.Send(input)
		}
		s.mu.Unlock()
		switch {
		case err != nil:
			return plain(err)
		case n > 0:
			input = input[n:]
		case time.Now().After(deadline): // -2: no room
			return errors.New("the machine does not read what is typed")
		default:
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// closeConsole closes a console. One that is not open is no error.
func (c *libvirtConn) closeConsole(uuid string) error {
	s := c.consoles
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream := s.open[uuid]; stream != nil {
		s.forgetLocked(uuid, stream)
	}
	return nil
}
