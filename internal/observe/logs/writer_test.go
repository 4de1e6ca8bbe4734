package logs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/logs"
)

// A gate is a log whose writes block until it is opened.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

func TestWriterKeepsOrder(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	w := logs.NewWriter(g)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(w, "line %d\n", i)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := g.String(); got != want.String() {
		t.Errorf("got %d bytes, want %d in order", len(got), want.Len())
	}
	fmt.Fprint(w, "after\n")
	if !strings.HasSuffix(g.String(), "after\n") {
		t.Error("a line after Close is lost")
	}
}

func TestWriterNeverWaits(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	w := logs.NewWriter(g)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	const lines = 4096 // four times maxPending
	for range lines {
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	close(g.open)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := g.String()
	written := strings.Count(got, "x\n")
	var dropped int
	if _, err := fmt.Sscanf(got[strings.LastIndex(got, "lines=")+len("lines="):], "%d", &dropped); err != nil {
		t.Fatalf("no line has the number of dropped lines: %v", err)
	}
	if written+dropped != lines || dropped == 0 || w.Dropped() != int64(dropped) {
		t.Errorf("%d written + %d dropped, want %d in all and some dropped", written, dropped, lines)
	}
}
