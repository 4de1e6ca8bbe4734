// Package faultfs is a file system for tests whose disk fails, hangs or is slow.
//
//	disk := faultfs.Mount(t, dir)
//	disk.Fail(func(op faultfs.Op, at int64, size int) syscall.Errno { if op == faultfs.Sync { return syscall.EIO }; return 0 })
//
// It is a FUSE server in the test's process, before a folder of its own.
package faultfs

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/bootlab/bootlab/test/support/netns"
)

// An Op is an operation on an open file.
type Op int

// The operations that can fail.
const (
	Read Op = iota
	Write
	Sync
	Stat // of a file, a folder, and of the file system: stat(2) and statfs(2)
)

// A Disk is what a mounted file system is on.
type Disk struct {
	fault atomic.Pointer[func(op Op, at int64, size int) syscall.Errno]
}

// Fail calls fault before each operation, with the part of the file, which is empty for Sync and Stat. An error that is not 0 is the result of
// the operation. It may block. Nil ends all faults.
func (d *Disk) Fail(fault func(op Op, at int64, size int) syscall.Errno) {
	if fault == nil {
		d.fault.Store(nil)
		return
	}
	d.fault.Store(&fault)
}

func (d *Disk) do(op Op, at int64, size int) syscall.Errno {
	if f := d.fault.Load(); f != nil {
		return (*f)(op, at, size)
	}
	return 0
}

// Mount mounts a file system on dir until the test ends. It skips the test where there is no FUSE.
func Mount(t testing.TB, dir string) *Disk {
	t.Helper()
	netns.Need(t, "root", "/dev/fuse")
	d := &Disk{}
	backing := t.TempDir()
	data := &fs.LoopbackRoot{Path: backing}
	//lint:ignore SA1019 NodeWrapChilder cannot hand the disk to the root's children
	data.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{fs.LoopbackNode{RootData: r}, d}
	}
	root := &node{fs.LoopbackNode{RootData: data}, d}
	data.RootNode = root
	none := time.Duration(0)
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, Name: "faultfs"}, AttrTimeout: &none, EntryTimeout: &none,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Fail(nil)
		if err := server.Unmount(); err != nil {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return d
}

// A node is a file or folder.
type node struct {
	fs.LoopbackNode
	disk *Disk
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, h, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.wrap(h), fuse.FOPEN_DIRECT_IO, errno
}

// Open implements fs.NodeOpener.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, _, errno := n.LoopbackNode.Open(ctx, flags)
	return n.wrap(h), fuse.FOPEN_DIRECT_IO, errno
}

func (n *node) wrap(h fs.FileHandle) fs.FileHandle {
	if f, ok := h.(*fs.LoopbackFile); ok {
		return &handle{f, n.disk}
	}
	return h
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if errno := n.disk.do(Stat, 0, 0); errno != 0 {
		return errno
	}
	if h, ok := f.(*handle); ok {
		f = h.LoopbackFile
	}
	return n.LoopbackNode.Getattr(ctx, f, out)
}

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	if errno := n.disk.do(Stat, 0, 0); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Statfs(ctx, out)
}

// A handle is an open file.
type handle struct {
	*fs.LoopbackFile
	disk *Disk
}

// PassthroughFd implements fs.FilePassthroughFder: the kernel must not bypass the faults.
func (h *handle) PassthroughFd() (int, bool) { return 0, false }

// Read implements fs.FileReader.
func (h *handle) Read(ctx context.Context, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	if errno := h.disk.do(Read, at, len(b)); errno != 0 {
		return nil, errno
	}
	return h.LoopbackFile.Read(ctx, b, at)
}

// Write implements fs.FileWriter.
func (h *handle) Write(ctx context.Context, b []byte, at int64) (uint32, syscall.Errno) {
	if errno := h.disk.do(Write, at, len(b)); errno != 0 {
		return 0, errno
	}
	return h.LoopbackFile.Write(ctx, b, at)
}

// Fsync implements fs.FileFsyncer.
func (h *handle) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := h.disk.do(Sync, 0, 0); errno != 0 {
		return errno
	}
	return h.LoopbackFile.Fsync(ctx, flags)
}
