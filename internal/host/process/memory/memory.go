package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// A Follower sets the memory limit of the Go runtime. It belongs to one goroutine.
type Follower struct {
	root   fs.FS // "/", or a test's
	manual bool  // the operator has set GOMEMLIMIT
	limit  int64 // as set last; 0: never
}

// NewFollower returns a follower of the control group whose files are below root.
func NewFollower(root fs.FS) *Follower {
	return &Follower{root: root, manual: os.Getenv("GOMEMLIMIT") != ""}
}

// Update sets the limit of the Go runtime to nine tenths of the control group's: the rest is for what Go does not count, such as
// C libraries and the kernel's memory for sockets. It returns the new limit in bytes, and whether it changed.
func (f *Follower) Update() (limit int64, changed bool) {
	limit = Limit(f.root)
	if limit < math.MaxInt64 {
		limit -= limit / 10
	}
	if f.manual || limit == f.limit || f.limit == 0 && limit == math.MaxInt64 {
		return f.limit, false
	}
	f.limit = limit
	debug.SetMemoryLimit(limit)
	return limit, true
}

// noLimit and more is what version 1 shows where there is no limit: the largest multiple of the page size.
const noLimit = math.MaxInt64 &^ (1<<20 - 1)

// Limit returns how many bytes the control group of the process may use, the least of it and its parents; math.MaxInt64: no
// limit, or no control group that can be read.
func Limit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) { // HIERARCHY:CONTROLLERS:PATH, see cgroups(7)
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// In a container the path may be that of the host, whose files are not there; those at the top are.
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			text, err := fs.ReadFile(root, path.Join(top, group, file))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n < noLimit { // "max" is no number
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}
