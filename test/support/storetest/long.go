package storetest

import "os"

// Long reports whether tests may take hours, as in make test-long.
func Long() bool { return os.Getenv("BOOTLAB_LONG") != "" }
