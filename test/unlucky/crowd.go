package main

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// longest bounds a crowd whose tests never end. The longest tests, test/e2e, take half an hour beside one.
const longest = 90 * time.Minute

// crowd keeps the processors busy until done is closed, and no longer than whoever started this program lives: tests that want one
// processor get one turn of three then, and take about three times as long.
//
// The busy ones are threads of this program, not processes. The kernel shares its processors out by thread, so nothing is different
// for the tests, and nothing can stay behind.
func crowd(_ int, done <-chan struct{}) {
	many := 2 * runtime.NumCPU()
	runtime.GOMAXPROCS(many + 1) // one to see that done is closed
	parent, end := os.Getppid(), time.Now().Add(longest)
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			for !closed(done) && os.Getppid() == parent && time.Now().Before(end) {
				spin(time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// spin does nothing but take a processor's time.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
