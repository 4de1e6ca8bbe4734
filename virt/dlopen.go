//go:build cgo && libvirt_dlopen

package virt

/*
#cgo LDFLAGS: -ldl
#include "dlopen.h"
*/
import "C"

import (
	"errors"
	"fmt"
)

// errNoLibrary is wrapped by the error of every call on a machine without libvirt.
var errNoLibrary = errors.New("no libvirt library on this machine: install libvirt0 (Debian) or libvirt-libs (Fedora)")

// openLibrary loads libvirt at the first call. If that fails, the next call tries again: libvirt may have been installed.
func openLibrary() error {
	if why := C.libvirtOpen(); why != nil {
		return fmt.Errorf("%w (%s)", errNoLibrary, C.GoString(why))
	}
	return nil
}
