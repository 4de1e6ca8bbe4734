package confine

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFilterByConvention runs the filter on calls that a test cannot make: by the convention of 32-bit code, whose numbers mean
// other calls.
func TestFilterByConvention(t *testing.T) {
	t.Parallel()
	raw, err := filter()
	if err != nil {
		t.Fatal(err)
	}
	if raw == nil {
		t.Skip("bootlab has no filter for " + runtime.GOARCH + " and starts without one there")
	}
	program := make([]bpf.Instruction, 0, len(raw))
	for _, i := range raw {
		program = append(program, i.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]uint32{"amd64": conventionX8664, "arm64": conventionARM64}[runtime.GOARCH]
	const i386 = 0x40000003
	const allow, eperm, enosys = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	for _, tt := range []struct {
		name                   string
		convention, call, arg0 uint32
		want                   uint32
	}{
		{"own getpid", own, unix.SYS_GETPID, 0, allow},
		{"i386 getpid", i386, 20, 0, eperm},
		{"i386 ptrace", i386, 26, 0, eperm},
		{"x32 getpid", own, x32 | unix.SYS_GETPID, 0, enosys},
		{"fork", own, unix.SYS_CLONE, uint32(unix.SIGCHLD), allow},
		{"user namespace", own, unix.SYS_CLONE, unix.CLONE_NEWUSER | uint32(unix.SIGCHLD), eperm},
		{"a call that comes after all that are known", own, 4000, 0, allow},
	} {
		var data [64]byte // struct seccomp_data; the machine reads big-endian
		binary.BigEndian.PutUint32(data[offCall:], tt.call)
		binary.BigEndian.PutUint32(data[offConvention:], tt.convention)
		binary.BigEndian.PutUint32(data[offFirstArg:], tt.arg0)
		got, err := vm.Run(data[:])
		if err != nil || uint32(got) != tt.want {
			t.Errorf("%s: %#x, %v; want %#x", tt.name, got, err, tt.want)
		}
	}
}
