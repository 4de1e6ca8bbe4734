//go:build cgo && libvirt_dlopen

package virt

/*
#cgo LDFLAGS: -Wl,--wrap=virSetErrorFuncWrapper
#include <stddef.h>

typedef void (*handler)(void *data, void *error);

// Weak, because this package is also linked alone, without the binding.
void __real_virSetErrorFuncWrapper(void *data, handler h) __attribute__((weak));

// What the binding's init function calls instead.
void __wrap_virSetErrorFuncWrapper(void *data, handler h) {}

static void ignore(void *data, void *error) {}

static void silence(void) { __real_virSetErrorFuncWrapper(NULL, ignore); }
*/
import "C"

// silenceLibvirt loads libvirt's library and keeps it from writing its errors to standard error.
//
// The binding loads the library at its first call, and makes one in an init function, to this end: in every process of this program. Only
// the processes of hypervisors may have the library and its sixty dependencies, so the linker replaces the function that init calls by one
// that does nothing (--wrap), and these processes call this one. Nothing else in this program calls libvirt in another process.
func silenceLibvirt() { C.silence() }
