package logs

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending bounds the bytes that wait for a slow reader, such as a busy journal: some 8,000 lines.
const maxPending = 1 << 20

// interval is the least time between two writes. A write takes a turn of the scheduler, and may block on a slow file system or
// reader: then the runtime needs up to 20 ms to give the CPU to another goroutine where there is only one. Without a pause there
// would be a write for every few lines.
const interval = 10 * time.Millisecond

// A Writer buffers lines and writes them from a goroutine of its own, with one system call for all that wait. Without it, logging would
// cost more than the packets when many machines boot at once, and a reader that stops would stop the servers. Lines beyond the bound are
// dropped, and a line logs how many. It is safe for concurrent use.
type Writer struct {
	out  io.Writer
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending []byte
	dropped int
	closed  bool

	allDropped atomic.Int64
}

// NewWriter returns a writer to out, which it does not own. Close must be called, or the last lines are lost.
func NewWriter(out io.Writer) *Writer {
	if out == nil {
		panic("logs: NewWriter: out is nil")
	}
	w := &Writer{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write takes one line. It never fails; after Close it writes at once.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return w.out.Write(line)
	case len(w.pending)+len(line) > maxPending:
		w.dropped++
		w.allDropped.Add(1)
	default:
		w.pending = append(w.pending, line...)
	}
	if len(w.wake) == 0 {
		w.wake <- struct{}{} // never blocks: only this function sends, under the lock
	}
	return len(line), nil
}

// Dropped returns how many lines were dropped so far.
func (w *Writer) Dropped() int64 { return w.allDropped.Load() }

// Close writes all pending lines. It does not close out.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	close(w.wake)
	w.mu.Unlock()
	<-w.done
	return nil
}

func (w *Writer) run() {
	defer close(w.done)
	var lines []byte
	for range w.wake {
		lines = w.flush(lines)
		time.Sleep(interval)
	}
	w.flush(lines)
}

// flush writes all pending lines, and returns its buffer for the next time.
func (w *Writer) flush(spare []byte) []byte {
	w.mu.Lock()
	lines, dropped := w.pending, w.dropped
	w.pending, w.dropped = spare[:0], 0
	w.mu.Unlock()
	if dropped > 0 {
		lines = appendDropped(lines, dropped)
	}
	if len(lines) > 0 {
		_, _ = w.out.Write(lines) // there is nowhere to report that the log cannot be written
	}
	if cap(lines) > maxPending/16 {
		return nil // do not keep a large buffer
	}
	return lines
}

// appendDropped appends a line with the number of dropped lines, in the format of the lines before it.
func appendDropped(lines []byte, dropped int) []byte {
	format := "level=WARN msg=\"log lines dropped: the reader of the log is too slow\" lines=%d\n"
	if len(lines) > 0 && lines[0] == '{' {
		format = `{"level":"WARN","msg":"log lines dropped: the reader of the log is too slow","lines":%d}` + "\n"
	}
	return fmt.Appendf(lines, format, dropped)
}
