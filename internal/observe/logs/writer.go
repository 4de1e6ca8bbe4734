package logs

import (
	"fmt"
	"io"
	"sync"
)

// maxPending is how much of a log may wait for a slow reader, such as a journal that is busy. It holds some 8,000 lines.
const maxPending = 1 << 20

// A Writer takes lines without waiting and writes them from a goroutine of its own, all that came meanwhile with one
// system call: in a boot storm the log would else cost more than the packets it tells of, and a reader that stops reading
// would stop the packets. When too much waits, lines are dropped, and a line says how many. It is safe for concurrent use.
type Writer struct {
	out  io.Writer
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	pending []byte
	dropped int
	closed  bool
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
	default:
		w.pending = append(w.pending, line...)
	}
	if len(w.wake) == 0 {
		w.wake <- struct{}{} // has room: only this function fills it, under the lock
	}
	return len(line), nil
}

// Close writes what waits. It does not close out.
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
	}
	w.flush(lines)
}

// flush writes what waits, and returns its buffer for the next time.
func (w *Writer) flush(spare []byte) []byte {
	w.mu.Lock()
	lines, dropped := w.pending, w.dropped
	w.pending, w.dropped = spare[:0], 0
	w.mu.Unlock()
	if dropped > 0 {
		lines = appendDropped(lines, dropped)
	}
	if len(lines) > 0 {
		_, _ = w.out.Write(lines) // a log that cannot be written to has nobody to complain to
	}
	if cap(lines) > maxPending/16 {
		return nil // a storm is over: its buffer is not kept
	}
	return lines
}

// appendDropped says how many lines are missing, in the format of the lines before it.
func appendDropped(lines []byte, dropped int) []byte {
	format := "level=WARN msg=\"log lines dropped: whoever reads the log is too slow\" lines=%d\n"
	if len(lines) > 0 && lines[0] == '{' {
		format = `{"level":"WARN","msg":"log lines dropped: whoever reads the log is too slow","lines":%d}` + "\n"
	}
	return fmt.Appendf(lines, format, dropped)
}
