package interop

import (
	"os"
	"testing"
)

// pending skips what issue 3 asks for and the daemon does not do yet. BOOTLAB_PENDING=run runs it all the same.
func pending(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("BOOTLAB_PENDING") != "run" {
		t.Skip("issue 3: not wired yet: " + why)
	}
}
