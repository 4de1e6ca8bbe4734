package storetest

import (
	"os"
	"strconv"
)

// Long reports whether tests may take hours, as in make test-long.
func Long() bool { return os.Getenv("BOOTLAB_LONG") != "" }

// Rounds returns how often a test repeats what it does: the second number if tests may take hours, else the first, or what
// BOOTLAB_ROUNDS says.
func Rounds(short, long int) int {
	if n, err := strconv.Atoi(os.Getenv("BOOTLAB_ROUNDS")); err == nil {
		return n
	}
	if Long() {
		return long
	}
	return short
}
