package virt

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bootlab/bootlab/internal/host/confine"
)

// The daemon and the process of a hypervisor send each other frames over a socket: four bytes of length, big-endian, and JSON.
// The daemon sends a request and receives one response. A process for consoles also sends frames with what they write. Both are the same
// program, so there are no versions.

// A method is a call that a process makes.
type method string

// The methods. Connect is the first request to a process.
const (
	methodConnect      method = "connect"
	methodDomains      method = "domains"
	methodNode         method = "node"
	methodPools        method = "pools"
	methodNetworks     method = "networks"
	methodCapabilities method = "capabilities"
	methodInterfaces   method = "list interfaces"
	methodDefineNet    method = "define network"
	methodDeleteNet    method = "delete network"
	methodFind         method = "find"
	methodXML          method = "xml"
	methodDefine       method = "define"
	methodAutostart    method = "set autostart"
	methodStart        method = "start"
	methodStartWith    method = "start with"
	methodSetBootOrder method = "set boot order"
	methodShutdown     method = "shutdown"
	methodDestroy      method = "destroy"
	methodUndefine     method = "undefine"
	methodVolumes      method = "list volumes"
	methodVolumeAt     method = "find volume"
	methodGrow         method = "resize volume"
	methodCreateVolume method = "create volume"
	methodUploadVolume method = "upload volume"
	methodDeleteVolume method = "delete volume"

	methodSnapshots      method = "list snapshots"
	methodSnapshot       method = "create snapshot"
	methodRevert         method = "revert to snapshot"
	methodDeleteSnapshot method = "delete snapshot"

	// Of a process for consoles.
	methodOpenConsole  method = methodsOfConsoles + "open"
	methodTypeConsole  method = methodsOfConsoles + "type"
	methodCloseConsole method = methodsOfConsoles + "close"
)

// methodsOfConsoles begins the names of the methods of a process for consoles.
const methodsOfConsoles = "console "

// A request is one call. Which fields it has depends on the method.
type request struct {
	Method  method
	URI     string          `json:",omitempty"`
	Confine *confine.Paths  `json:",omitempty"` // what the process may open, from now on; nil: no limit
	UUID    string          `json:",omitempty"`
	XML     string          `json:",omitempty"`
	Pool    string          `json:",omitempty"`
	Name    string          `json:",omitempty"`
	Arch    string          `json:",omitempty"`
	Type    string          `json:",omitempty"` // of a domain
	Bytes   uint64          `json:",omitempty"`
	Order   map[string]uint `json:",omitempty"`
	Device  string          `json:",omitempty"`
	Volumes []VolumeID      `json:",omitempty"`
	Content []byte          `json:",omitempty"` // of a small upload; that of others comes from a pipe; what is typed

	Changes  bool `json:",omitempty"` // with connect: write the UUIDs of domains that have changed to the pipe
	Consoles bool `json:",omitempty"` // with connect: the process is for consoles
	On       bool `json:",omitempty"` // of set autostart
	Take     bool `json:",omitempty"` // take the console from another program
}

// A response is the result of a call.
type response struct {
	Err     string   `json:",omitempty"`
	Broken  bool     `json:",omitempty"` // Err says that there is no connection
	Text    string   `json:",omitempty"`
	Names   []string `json:",omitempty"`
	Bytes   uint64   `json:",omitempty"`
	Domains []Domain `json:",omitempty"`
	Volumes []Volume `json:",omitempty"`

	Node      Node          `json:",omitzero"`
	Pools     []Pool        `json:",omitempty"`
	Networks  []Network     `json:",omitempty"`
	Snapshots []Snapshot    `json:",omitempty"`
	Console   *consoleFrame `json:",omitempty"` // not an answer: a console wrote
}

// A consoleFrame is what happened to a console.
type consoleFrame struct {
	UUID   string // of the domain
	Output []byte `json:",omitempty"`
	Ended  string `json:",omitempty"` // why it was closed
	Reset  bool   `json:",omitempty"` // the machine was reset: the firmware starts
}

// maxFrame is far above the list of the domains of any hypervisor.
const maxFrame = 64 << 20

// writeFrame writes a value as one frame.
func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a message of %d bytes is larger than %d", len(body), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

// readFrame reads one frame into a value. Before the body has arrived it takes no more memory than that.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("a message of %d bytes is larger than %d", n, maxFrame)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(body) < int(n) {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(body, v)
}
