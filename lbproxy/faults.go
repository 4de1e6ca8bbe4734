package lbproxy

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/bootlab/bootlab/internal/observe/panics"
)

// A fault is why a connect, a check or a datagram failed on this machine. It says nothing about the backend; empty: the backend or the
// network has failed.
type fault string

const (
	faultDescriptors fault = "descriptors" // the limit of open files, of the process or of the machine
	faultPorts       fault = "ports"       // no local port or address is free
	faultMemory      fault = "memory"
	faultDenied      fault = "denied"  // by the firewall or a security policy of this machine
	faultSize        fault = "size"    // the datagram is too long for the backend's family
	faultFile        fault = "ca_file" // it cannot be read
	faultPanic       fault = "panic"   // a bug of bootlab
)

// A faultError is an error of this machine that has no number.
type faultError struct {
	fault fault
	error
}

// Unwrap returns the cause.
func (e *faultError) Unwrap() error { return e.error }

// faultOf returns what failed on this machine when it used a backend at an address.
func faultOf(err error, to netip.Addr) fault {
	var own *faultError
	var errno syscall.Errno
	switch {
	case errors.As(err, &own):
		return own.fault
	case errors.Is(err, panics.ErrPanic):
		return faultPanic
	case !errors.As(err, &errno):
		return ""
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE:
		return faultDescriptors
	case syscall.EADDRNOTAVAIL, syscall.EAGAIN: // connect(2) of TCP and of UDP
		return faultPorts
	case syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC: // epoll_ctl(2)
		return faultMemory
	case syscall.EPERM:
		return faultDenied
	case syscall.EACCES:
		if to.Unmap().Is6() {
			return "" // a router, by ICMPv6 (administratively prohibited)
		}
		return faultDenied
	case syscall.EMSGSIZE:
		return faultSize
	}
	return ""
}

// countFault reports whether an error of a backend is of this machine, and counts and logs it then.
func (s *Server) countFault(err error, backend netip.AddrPort) bool {
	of := faultOf(err, backend.Addr())
	if of == "" {
		return false
	}
	s.metrics.faults.WithLabelValues(string(of)).Inc()
	s.faultLog.Do(func() {
		s.log.Warn("backends cannot be reached because of this machine, and keep their state", "reason", string(of), keyBackend, backend, keyErr, err)
	})
	return true
}
