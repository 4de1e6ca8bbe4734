package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is the unit of CPU time in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// A census is the CPU time, in ticks, of every process that is not ours, and of its children that ended. A process that ends
// between two of them is in its parent's then, so their difference misses nothing and counts nothing twice.
type census int64

// others counts the CPU time of all processes but this program with its children, and the kernel, which works for them; and what the
// hypervisor gave to other machines while this one had work.
func others() census {
	const kernel = 2
	self := os.Getppid() // the same program outside the namespace, whose child this is
	parents, used := map[int]int{}, map[int]int64{}
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, entry := range dir {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if parent, time, ok := parseStat(text); ok {
			parents[pid], used[pid] = parent, time
		}
	}
	system, _ := os.ReadFile("/proc/stat")
	total := stolen(system)
	for pid, time := range used {
		if !below(pid, self, parents) && !below(pid, kernel, parents) {
			total += time
		}
	}
	return census(total)
}

// below reports whether a process is another or descends from it.
func below(pid, ancestor int, parents map[int]int) bool {
	for ; pid > 1; pid = parents[pid] {
		if pid == ancestor {
			return true
		}
	}
	return false
}

// parseStat returns the parent and the CPU time of a process and of its children that ended, see proc_pid_stat(5).
func parseStat(text []byte) (parent int, used int64, ok bool) {
	end := bytes.LastIndexByte(text, ')') // of the name, which may hold anything
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 15 {
		return 0, 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(f, 10, 64)
		used += n
	}
	return parent, used, err == nil
}

// stolen returns the time that the hypervisor took from all processors, see proc_stat(5): 0 where the kernel does not say.
func stolen(text []byte) (steal int64) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if fields := strings.Fields(string(first)); len(fields) > 8 { // cpu, user, nice, system, idle, iowait, irq, softirq, steal
		steal, _ = strconv.ParseInt(fields[8], 10, 64)
	}
	return steal
}

// since returns how many seconds of CPU time others have used since the census.
func (c census) since() float64 { return max(0, float64(others()-c)/ticks) }

// A noise is what others used of the machine, see others, while something was measured. Waiting and starting are not part of it.
type noise struct {
	foreign float64 // seconds of CPU time
	total   float64 // seconds
}

// during does what is measured.
func (n *noise) during(do func()) {
	before, start := others(), time.Now()
	do()
	n.total += time.Since(start).Seconds()
	n.foreign += before.since()
}

// share is of one CPU.
func (n *noise) share() float64 {
	if n.total == 0 {
		return 0
	}
	return n.foreign / n.total
}
