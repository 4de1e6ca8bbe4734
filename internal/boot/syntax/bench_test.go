package syntax_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/boot/syntax"
)

// BenchmarkIgnition validates documents of the size that OpenShift's installer writes: a worker's is small, the bootstrap
// machine's holds 300 files.
func BenchmarkIgnition(b *testing.B) {
	for _, files := range []int{1, 300} {
		var text strings.Builder
		text.WriteString(`{"ignition": {"version": "3.2.0"}, "storage": {"files": [`)
		content := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a line of a file\n", 40)))
		for i := range files {
			fmt.Fprintf(&text, `{"path": "/opt/openshift/%d", "mode": 420, "contents": {"source": "data:text/plain;charset=utf-8;base64,%s"}},`, i, content)
		}
		text.WriteString(`{"path": "/etc/hostname", "contents": {"source": "data:,x"}}]}}`)
		b.Run(fmt.Sprintf("%dKB", text.Len()/1000), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e, _ := syntax.Report(syntax.Ignition, []byte(text.String())); e != nil {
					b.Fatal(e)
				}
			}
		})
	}
}
