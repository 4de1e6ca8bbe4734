package daemon

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadOnly(t *testing.T) {
	t.Parallel()
	const smaps = `00400000-00402000 r--p 00000000 fe:00 123 /usr/bin/bootlab
Rss:                   8 kB
Anonymous:             0 kB
00402000-00e54000 r-xp 00002000 fe:00 123 /usr/bin/bootlab
Anonymous:             0 kB
00e54000-00e55000 r--p 00a54000 fe:00 123 /usr/bin/bootlab
Anonymous:             4 kB
01a3d000-01ab0000 rw-p 0163c000 fe:00 123 /usr/bin/bootlab
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 9 /lib/libc.so.6
Anonymous:             0 kB
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
Anonymous:             0 kB
`
	got := readOnly(bufio.NewScanner(strings.NewReader(smaps)), "/usr/bin/bootlab")
	want := []mapping{{0x400000, 0x402000}, {0x402000, 0xe54000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGiveBack wants a smaller process that still runs.
func TestGiveBack(t *testing.T) {
	before := residentFile(t)
	giveBack()
	if after := residentFile(t); after >= before {
		t.Errorf("%s before, %s after: nothing was given back", before, after)
	}
}

// residentFile is the line of /proc/self/status that tells how much of files is in memory.
func residentFile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "RssFile:") {
			return line // right-aligned, so that lines compare as numbers
		}
	}
	t.Skip("this kernel does not tell RssFile")
	return ""
}
