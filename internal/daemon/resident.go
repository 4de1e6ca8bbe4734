package daemon

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack hands those pages of the program itself to the kernel that start-up touched and serving does not need: flags,
// YAML, templates, 6 of 29 MiB. What is needed again comes back from the page cache by itself (madvise(2), MADV_DONTNEED
// of a private file mapping); mappings that were ever written are left alone.
func giveBack() {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return // then it stays
	}
	defer maps.Close()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for _, m := range readOnly(bufio.NewScanner(maps), self) {
		// There is no Go slice over these addresses, so that unix.Madvise does not fit. An error leaves the pages in.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// A mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// readOnly returns the mappings of a file in smaps that cannot be written and never were.
func readOnly(smaps *bufio.Scanner, file string) (ms []mapping) {
	var candidate *mapping
	for smaps.Scan() {
		fields := strings.Fields(smaps.Text())
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"): // "start-end perms offset device inode path"
			candidate = nil
			if m, ok := parseMapping(fields[0]); ok && len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w") {
				candidate = &m
			}
		case candidate != nil && len(fields) == 3 && fields[0] == "Anonymous:":
			if fields[1] == "0" {
				ms = append(ms, *candidate)
			}
			candidate = nil
		}
	}
	return ms
}

func parseMapping(s string) (m mapping, ok bool) {
	from, to, _ := strings.Cut(s, "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	return mapping{uintptr(start), uintptr(end)}, err1 == nil && err2 == nil
}
