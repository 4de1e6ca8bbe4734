package virt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/confine"
	"github.com/bootlab/bootlab/internal/host/privilege"
)

// File descriptors of the process of a hypervisor.
const (
	fdDaemon  = 3 // the socket
	fdContent = 4 // the pipe with what is uploaded, or for the UUIDs of domains that have changed
)

// Limits of the process of a hypervisor. libvirt and Go take some 30 MiB.
const (
	processData  = 512 << 20 // bytes of memory beyond what it has at its start
	processFiles = 256
	processHeap  = 64 << 20 // of Go, where the garbage collector begins to work hard
)

// HypervisorProcess makes this process the one of a hypervisor and ends it, if Processes has started it for that; else it
// returns at once. A program that manages virtual machines calls it first of all.
func HypervisorProcess() {
	if os.Getenv(hypervisorProcess) == "" {
		return
	}
	code := 0
	if err := serveHypervisor(os.NewFile(fdDaemon, "daemon")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// serveHypervisor answers the requests of the daemon until it closes the socket.
func serveHypervisor(daemon *os.File) error {
	unix.CloseOnExec(fdDaemon)
	unix.CloseOnExec(fdContent)
	_ = os.Unsetenv(hypervisorProcess) // ssh may start this program for other things
	debug.SetMemoryLimit(processHeap)
	for resource, most := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: processFiles, unix.RLIMIT_DATA: dataBytes() + processData} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}) // a lower one stays
	}
	if err := privilege.Keep(keptCapabilities(os.Args)...); err != nil {
		return err
	}
	requests := make(chan request)
	go func() { // beside the calls: when the daemon has ended, a call that hangs ends too
		for {
			var req request
			if err := readFrame(daemon, &req); err != nil {
				os.Exit(0)
			}
			requests <- req
		}
	}()
	a := answerer{daemon: daemon}
	for req := range requests {
		if err := a.write(a.answer(req)); err != nil {
			return err
		}
	}
	return nil
}

// keptCapabilities returns those that the process of a hypervisor keeps: none, but for one of root whose URI, the last argument, makes
// libvirt run a program. libvirt takes all capabilities from ssh, and as root it needs this one for that.
func keptCapabilities(args []string) []privilege.Capability {
	transport, _, _ := strings.Cut(args[len(args)-1], "://")
	if os.Geteuid() == 0 && (strings.HasSuffix(transport, "+ssh") || strings.HasSuffix(transport, "+ext")) {
		return []privilege.Capability{privilege.SetPCap}
	}
	return nil
}

// An answerer makes the calls of a process.
type answerer struct {
	c        *libvirtConn
	consoles consoleOpener // nil: the process is not for consoles

	mu     sync.Mutex // of writes: consoles write beside the calls
	daemon *os.File
}

func (a *answerer) write(r response) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return writeFrame(a.daemon, r)
}

// answer makes one call.
func (a *answerer) answer(req request) (resp response) {
	if req.Method != methodConnect {
		if strings.HasPrefix(string(req.Method), methodsOfConsoles) {
			return a.console(req)
		}
		return a.c.serve(req)
	}
	conn, err := connectConfined(req)
	if err != nil {
		return response{Err: err.Error(), Broken: true}
	}
	a.c = conn
	if req.Changes {
		conn.watch(fdContent)
	}
	if req.Consoles {
		a.consoles = conn.consoles(func(f consoleFrame) {
			if err := a.write(response{Console: &f}); err != nil {
				os.Exit(0) // the daemon has ended
			}
		})
	}
	return response{}
}

// console makes one call of a process for consoles.
func (a *answerer) console(req request) (resp response) {
	var err error
	switch req.Method {
	case methodOpenConsole:
		err = a.consoles.openConsole(req.UUID, req.Take)
	case methodTypeConsole:
		err = a.consoles.typeConsole(req.UUID, req.Content)
	case methodCloseConsole:
		a.consoles.closeConsole(req.UUID)
	}
	if err != nil {
		resp.Err, resp.Broken = err.Error(), !a.c.alive()
	}
	return resp
}

// A consoleOpener is the serial consoles of a connection.
type consoleOpener interface {
	openConsole(uuid string, take bool) error
	typeConsole(uuid string, input []byte) error
	closeConsole(uuid string)
}

// errConsoleClosed is the error of input for a console that is not open.
var errConsoleClosed = errors.New("the console is not open")

// dataBytes returns the size of the memory of this process that RLIMIT_DATA limits.
func dataBytes() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var pages [6]uint64
	_, _ = fmt.Sscan(string(statm), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5])
	return pages[5] * uint64(os.Getpagesize())
}

// connectConfined confines the process and connects to the hypervisor.
func connectConfined(req request) (*libvirtConn, error) {
	if req.Confine != nil {
		if _, err := confine.Apply(*req.Confine); err != nil {
			return nil, err
		}
	}
	return dial(req.URI)
}

// serve makes one call.
func (c *libvirtConn) serve(req request) (resp response) {
	var err error
	switch req.Method {
	case methodDomains:
		resp.Domains, err = c.domains()
	case methodNode:
		resp.Node, err = c.node()
	case methodPools:
		resp.Pools, err = c.pools()
	case methodNetworks:
		resp.Networks, err = c.networks()
	case methodCapabilities:
		resp.Text, err = c.capabilities(req.Arch, req.Name, req.Type)
	case methodInterfaces:
		resp.Names, err = c.interfaces()
	case methodFind:
		resp.Domains, err = c.find(req.UUID, req.Name)
	case methodXML:
		resp.Text, err = c.xml(req.UUID)
	case methodVolumes:
		resp.Volumes, err = c.volumes(req.Volumes)
	case methodVolumeAt:
		resp.Volumes = make([]Volume, 1)
		resp.Volumes[0], err = c.volumeAt(req.Name)
	case methodCreateVolume:
		resp.Text, err = c.createVolume(req.Pool, req.XML)
	case methodUploadVolume:
		var content io.Reader = bytes.NewReader(req.Content)
		if req.Content == nil && req.Bytes > 0 {
			content = os.NewFile(fdContent, "content")
		}
		resp.Text, err = c.uploadVolume(req.Pool, req.XML, content, req.Bytes)
	case methodSnapshots:
		resp.Snapshots, err = c.snapshots(req.UUID)
	default:
		err = c.change(req)
	}
	if err != nil {
		resp.Err, resp.Broken = err.Error(), !c.alive()
	}
	return resp
}

// change makes a call that answers nothing but an error.
func (c *libvirtConn) change(req request) error {
	switch req.Method {
	case methodDefineNet:
		return c.defineNetwork(req.XML)
	case methodDeleteNet:
		return c.deleteNetwork(req.UUID)
	case methodDefine:
		return c.define(req.XML)
	case methodAutostart:
		return c.setAutostart(req.UUID, req.On)
	case methodStart:
		return c.start(req.UUID)
	case methodStartWith:
		return c.startWith(req.XML)
	case methodSetBootOrder:
		return c.setBootOrder(req.UUID, req.Order)
	case methodShutdown:
		return c.shutdown(req.UUID)
	case methodDestroy:
		return c.destroy(req.UUID)
	case methodUndefine:
		return c.undefine(req.UUID)
	case methodGrow:
		return c.grow(req.UUID, req.Device, VolumeID{req.Pool, req.Name}, req.Bytes)
	case methodDeleteVolume:
		return c.deleteVolume(req.Pool, req.Name)
	case methodSnapshot:
		return c.snapshot(req.UUID, req.XML)
	case methodRevert:
		return c.revert(req.UUID, req.Name)
	case methodDeleteSnapshot:
		return c.deleteSnapshot(req.UUID, req.Name)
	}
	return errors.New("unknown method " + string(req.Method))
}
