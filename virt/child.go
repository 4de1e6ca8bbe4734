package virt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/process/confine"
	"github.com/bootlab/bootlab/internal/host/process/privilege"
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
	c *libvirtConn

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
	var result any
	var err error
	if req.Method == methodConnect {
		_, err = call(a.connect, req.Args)
	} else {
		result, err = call(a.c.methods()[req.Method], req.Args)
	}
	if err == nil && result != nil {
		resp.Result, err = json.Marshal(result)
	}
	if err != nil {
		resp = response{Err: err.Error(), Broken: a.c == nil || !a.c.alive()}
	}
	return resp
}

// call calls a function with arguments in JSON. The last result of it is an error; if it has another one, that is returned.
func call(function any, arguments json.RawMessage) (any, error) {
	f := reflect.ValueOf(function)
	if !f.IsValid() {
		return nil, errors.New("unknown method")
	}
	var args []json.RawMessage
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	in := make([]reflect.Value, len(args))
	for i, arg := range args {
		v := reflect.New(f.Type().In(i))
		if err := json.Unmarshal(arg, v.Interface()); err != nil {
			return nil, err
		}
		in[i] = v.Elem()
	}
	out := f.Call(in)
	err, _ := out[len(out)-1].Interface().(error)
	if len(out) == 1 {
		return nil, err
	}
	return out[0].Interface(), err
}

// connect confines the process and connects to the hypervisor.
func (a *answerer) connect(to connection) (err error) {
	if to.Confine != nil {
		if _, err := confine.Apply(*to.Confine); err != nil {
			return err
		}
	}
	if a.c, err = dial(to.URI); err != nil {
		return err
	}
	if to.Changes {
		a.c.watch(fdContent)
	}
	if to.Consoles {
		a.c.openConsoles(func(f consoleFrame) {
			if err := a.write(response{Console: &f}); err != nil {
				os.Exit(0) // the daemon has ended
			}
		})
	}
	return nil
}

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
