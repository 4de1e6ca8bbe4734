package memory

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no control group", nil, math.MaxInt64},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, math.MaxInt64},
		{"a service", map[string]string{"proc/self/cgroup": "0::/system.slice/bootlab.service\n", "sys/fs/cgroup/system.slice/bootlab.service/memory.max": "268435456\n"}, 256 << 20},
		{"its slice", map[string]string{"proc/self/cgroup": "0::/s.slice/b.service\n", "sys/fs/cgroup/s.slice/b.service/memory.max": "max\n", "sys/fs/cgroup/s.slice/memory.max": "1000\n"}, 1000},
		{"both", map[string]string{"proc/self/cgroup": "0::/s/b\n", "sys/fs/cgroup/s/b/memory.max": "900\n", "sys/fs/cgroup/s/memory.max": "1000\n"}, 900},
		{"a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		{"a container with the host's path", map[string]string{"proc/self/cgroup": "0::/../docker/1\n", "sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/b\n4:memory:/b\n1:name=systemd:/b\n", "sys/fs/cgroup/memory/b/memory.limit_in_bytes": "1000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 1000},
		{"version 1 without a limit", map[string]string{"proc/self/cgroup": "4:memory:/b\n", "sys/fs/cgroup/memory/b/memory.limit_in_bytes": "9223372036854771712\n"}, math.MaxInt64},
		{"not a number", map[string]string{"proc/self/cgroup": "0::/\n\n:\n", "sys/fs/cgroup/memory.max": "many\n"}, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Limit(filesOf(tt.files)); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func filesOf(texts map[string]string) fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range texts {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// TestUpdate: the limit of the runtime follows the control group, also when it changes, and leaves an operator's alone.
func TestUpdate(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	files := filesOf(map[string]string{"proc/self/cgroup": "0::/\n"})
	group := func(limit string) { files["sys/fs/cgroup/memory.max"] = &fstest.MapFile{Data: []byte(limit)} }
	f := NewFollower(files)
	is := func(changed bool, want int64) {
		t.Helper()
		if _, got := f.Update(); got != changed || debug.SetMemoryLimit(-1) != want {
			t.Errorf("changed %t to %d, want %t, %d", got, debug.SetMemoryLimit(-1), changed, want)
		}
	}
	is(false, before)
	group("10000000000")
	is(true, 9000000000)
	is(false, 9000000000)
	group("20000000000")
	is(true, 18000000000)
	group("max")
	is(true, math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "1GiB")
	group("10000000000")
	f = NewFollower(files)
	is(false, math.MaxInt64)
}
