//go:build cgo && libvirt_dlopen

package virt

/*
#cgo LDFLAGS: -ldl
#include "lazy.h"
*/
import "C"

import (
	"errors"
	"fmt"
)

// errNoLibrary is wrapped by the error of the first call on a machine without libvirt.
var errNoLibrary = errors.New("no libvirt library on this machine: install libvirt0 (Debian) or libvirt-libs (Fedora)")

// openLibrary loads libvirt, when the first virtual machine is asked for. On a machine without it nothing is remembered:
// once it is installed, the next call finds it.
func openLibrary() error {
	if why := C.libvirtOpen(); why != nil {
		return fmt.Errorf("%w (%s)", errNoLibrary, C.GoString(why))
	}
	return nil
}
