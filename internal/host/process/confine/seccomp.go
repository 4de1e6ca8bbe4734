package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// The filter refuses what no server and none of its programs (ssh, ipmitool) needs, and allows the rest. A list of what is
// allowed would depend on the C libraries that libvirt brings, on the version of Go and on the programs that are started: a
// call that is missing there stops a hypervisor one day. systemd-analyze and the unit go further, where systemd runs.
//
// It is assembled here because of two things that a list of names in a library lacks: a system call by another convention
// (32-bit code in a 64-bit process) is refused and not allowed, and arguments of clone and socket are looked at.

// refused are the system calls that fail with EPERM.
var refused = []uint32{
	// look into other processes, or change them
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	// the kernel: another one, modules, programs in it, its log, its keys, its measurements
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_SYSLOG, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE,
	// a large part of the kernel that nothing here uses
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// file systems
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	// namespaces
	unix.SYS_SETNS, unix.SYS_UNSHARE,
	// the machine: power, clock, name, accounting
	unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_ACCT,
	// memory of other processes
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}

// families are those that sockets may have; others fail with EAFNOSUPPORT.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET}

// configuring are the ioctls that change interfaces, routes and neighbours. With the last, beginConfiguring to endConfiguring, are
// those of VLANs, bonds, bridges, tunnels and drivers. CAP_NET_ADMIN, which a daemon keeps to add addresses by rtnetlink, would allow
// them.
var configuring = []uint32{
	unix.SIOCADDRT, unix.SIOCDELRT, unix.SIOCSIFLINK, unix.SIOCSIFFLAGS, unix.SIOCSIFADDR, unix.SIOCSIFDSTADDR, unix.SIOCSIFBRDADDR, unix.SIOCSIFNETMASK,
	unix.SIOCSIFMETRIC, unix.SIOCSIFMTU, unix.SIOCSIFNAME, unix.SIOCSIFHWADDR, unix.SIOCSIFENCAP, unix.SIOCSIFPFLAGS, unix.SIOCDIFADDR,
	unix.SIOCSIFHWBROADCAST, unix.SIOCSIFBR, unix.SIOCSIFTXQLEN, unix.SIOCETHTOOL, unix.SIOCSMIIREG,
}

const beginConfiguring, endConfiguring = unix.SIOCDARP, 0x89ff

// firewalls are the options that change the rules of iptables, ip6tables, arptables and ebtables, at the levels of IPv4 and IPv6. nftables has
// netlink.
var firewalls = []uint32{64, 65, 96, 97, 128, 129}

// newNamespaces are the flags of clone that make a namespace.
const newNamespaces = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWUSER | unix.CLONE_NEWUTS

// Offsets in struct seccomp_data. Both processors are little-endian: the low half of an argument comes first.
const (
	offCall         = 0
	offConvention   = 4
	offFirstArg     = 16
	offSecondArg    = 24
	offThirdArg     = 32
	conventionX8664 = 0xc000003e // AUDIT_ARCH_X86_64
	conventionARM64 = 0xc00000b7 // AUDIT_ARCH_AARCH64
	x32             = 0x40000000 // set in calls of the x32 convention
)

// fail is the result of a filter for a call that fails with errno.
func fail(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// filter returns the program for this processor, or nil if there is none.
func filter() ([]bpf.RawInstruction, error) {
	convention, ok := map[string]uint32{"amd64": conventionX8664, "arm64": conventionARM64}[runtime.GOARCH]
	if !ok {
		return nil, nil
	}
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	unless := func(value uint32, skip uint8) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: skip}
	}
	p := []bpf.Instruction{
		load(offConvention),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: convention, SkipTrue: 1},
		fail(unix.EPERM),
		load(offCall),
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		fail(unix.ENOSYS),
	}
	for _, call := range refused {
		p = append(p, unless(call, 1), fail(unix.EPERM))
	}
	// clone3 has its flags in memory, where a filter cannot look. The C library uses clone where there is no clone3.
	p = append(p, unless(unix.SYS_CLONE3, 1), fail(unix.ENOSYS))
	p = append(p,
		unless(unix.SYS_CLONE, 4),
		load(offFirstArg),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1},
		fail(unix.EPERM),
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	p = append(p, unless(unix.SYS_IOCTL, uint8(2*len(configuring)+5)), load(offSecondArg))
	for _, request := range configuring {
		p = append(p, unless(request, 1), fail(unix.EPERM))
	}
	p = append(p,
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: beginConfiguring, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: endConfiguring, SkipTrue: 1},
		fail(unix.EPERM),
		allow)
	p = append(p, unless(unix.SYS_SETSOCKOPT, uint8(2*len(firewalls)+6)), load(offSecondArg),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_IP, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_IPV6, SkipTrue: 1},
		allow,
		load(offThirdArg))
	for _, option := range firewalls {
		p = append(p, unless(option, 1), fail(unix.EPERM))
	}
	p = append(p, allow)
	// Of netlink only rtnetlink: nftables, IPsec and whatever else is configured by it need no server.
	p = append(p, unless(unix.SYS_SOCKET, uint8(2*len(families)+7)), load(offFirstArg),
		unless(unix.AF_NETLINK, 4),
		load(offThirdArg),
		unless(unix.NETLINK_ROUTE, 1),
		allow,
		fail(unix.EPROTONOSUPPORT))
	for _, family := range families {
		p = append(p, unless(family, 1), bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	}
	p = append(p, fail(unix.EAFNOSUPPORT), bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	return bpf.Assemble(p)
}

// install loads the program for all threads. Threads that start later, and programs, inherit it.
func install(program []bpf.RawInstruction) error {
	if _, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil { // else it needs root
		return err
	}
	instructions := make([]unix.SockFilter, 0, len(program))
	for _, i := range program {
		instructions = append(instructions, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	prog := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(instructions)
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}
	return nil
}
