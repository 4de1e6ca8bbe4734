//go:build cgo && libvirt_dlopen

package virt_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/bootlab/bootlab/internal/observe/consolelog"
)

// TestConsoleViewers: a machine writes every byte there is, over and over, to a viewer that reads, one that leaves in between and one that
// does not read. The first gets every byte in its order, the log keeps its share, and what is shown of it is text.
func TestConsoleViewers(t *testing.T) {
	r := newConsoleRig(t, "hello\r\n")
	ctx := t.Context()
	check(t, r.Create(ctx, "master-0"))
	check(t, r.Start(ctx, "master-0"))
	f := r.follow(t)
	f.wantState(t, "connected")
	f.wantOutput(t, "hello\r\n")
	_, err := r.Console(ctx, "master-0") // nobody reads it
	check(t, err)
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	left, err := r.Console(leaving, "master-0")
	check(t, err)

	var all []byte
	for c := range 256 {
		if c != 'R' { // the guest resets itself
			all = append(all, byte(c))
		}
	}
	const rounds = 80
	var want bytes.Buffer
	for i := range rounds {
		block := append([]byte(fmt.Sprintf("<%03d>\x1b]0;title\a\x1b[6n\x9b6n\xff\xfe", i)), all...)
		want.Write(block)
		check(t, r.Type(ctx, "master-0", block))
		f.waitFor(t, fmt.Sprintf("block %d", i), func() bool { return bytes.HasSuffix(f.output.Bytes(), block) })
		if i == rounds/2 {
			leave()
		}
	}
	f.mu.Lock()
	if !bytes.HasSuffix(f.output.Bytes(), want.Bytes()) {
		t.Error("the viewer that reads has not got what the machine wrote")
	}
	f.mu.Unlock()
	for range left { // closed
	}
	r.log.Flush(ctx)
	boots := r.log.Boots("master-0")
	if len(boots) != 1 {
		t.Fatalf("boots: %+v", boots)
	}
	kept, err := r.log.Read("master-0", boots[0].Started)
	check(t, err)
	if !bytes.HasSuffix(kept, want.Bytes()) {
		t.Errorf("%d bytes are kept, without what was written last", len(kept))
	}
	if text := string(consolelog.Plain(kept)); !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n", r) }) ||
		strings.Contains(text, "title") {
		t.Errorf("what is shown of the log has control sequences: %.600q", text)
	}
}
