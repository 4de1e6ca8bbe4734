package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stalls stops one process of the tests that root runs, or all, for 50 to 300 ms, and again after at most 600 ms, until done is
// closed.
func stalls(root int, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(50+rand.IntN(550)) * time.Millisecond):
		}
		who := underTest(root)
		if len(who) == 0 {
			continue
		}
		if rand.IntN(5) < 3 {
			who = []int{who[rand.IntN(len(who))]}
		}
		signal(who, syscall.SIGSTOP)
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		signal(who, syscall.SIGCONT)
	}
}

// signal sends to processes of which some may have ended.
func signal(pids []int, s syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
}

// underTest returns the test programs below a process, and all that is below them: not go, nor its compiler.
func underTest(root int) (pids []int) {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			parent := parentOf(pid)
			children[parent] = append(children[parent], pid)
		}
	}
	var walk func(pid int, tested bool)
	walk = func(pid int, tested bool) {
		exe, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if tested = tested || strings.HasSuffix(exe, ".test"); tested {
			pids = append(pids, pid)
		}
		for _, child := range children[pid] {
			walk(child, tested)
		}
	}
	walk(root, false)
	return pids
}

// parentOf returns 0 for a process that is gone.
func parentOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, ok := strings.Cut(string(stat), ") ") // the name before it may hold anything, but rarely this
	if fields := strings.Fields(rest); err == nil && ok && len(fields) > 1 {
		parent, _ := strconv.Atoi(fields[1])
		return parent
	}
	return 0
}
