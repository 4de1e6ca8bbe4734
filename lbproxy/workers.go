package lbproxy

// workersIdle is how many goroutines wait for the next function.
const workersIdle = 128

// workers run functions on goroutines that are kept for the next one: the stack of a new goroutine grows, by copying, until it can
// connect to a backend, which took a short connection a tenth of its CPU time.
type workers struct {
	tasks   chan func()
	waiting chan struct{} // one value for each goroutine that waits
	closed  chan struct{}
}

func newWorkers() *workers {
	return &workers{tasks: make(chan func()), waiting: make(chan struct{}, workersIdle), closed: make(chan struct{})}
}

// run calls f on a goroutine that waits, else on a new one.
func (w *workers) run(f func()) {
	select {
	case w.tasks <- f:
	default:
		go w.work(f)
	}
}

func (w *workers) work(f func()) {
	for {
		f()
		select {
		case w.waiting <- struct{}{}:
		default:
			return // enough wait
		}
		select {
		case f = <-w.tasks:
			<-w.waiting
		case <-w.closed:
			return
		}
	}
}

// close ends the goroutines that wait, now and later.
func (w *workers) close() { close(w.closed) }
