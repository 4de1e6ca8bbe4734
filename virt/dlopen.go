//go:build cgo && libvirt_dlopen

package virt

// #cgo LDFLAGS: -ldl
import "C"
