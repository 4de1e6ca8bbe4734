package virt

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bootlab/bootlab/internal/host/process/confine"
)

// The daemon and the process of a hypervisor send each other frames over a socket: four bytes of length, big-endian, and JSON.
// The daemon sends a request and receives one response. A process for consoles also sends frames with what they write. Both are the same
// program, so there are no versions.

// methodConnect is the first call to a process. The others are libvirtConn.methods.
const methodConnect = "connect"

// A request is one call, with its arguments as a JSON array.
type request struct {
	Method string
	Args   json.RawMessage `json:",omitempty"`
}

// A connection is what a new process connects to, and what for.
type connection struct {
	URI      string
	Confine  *confine.Paths `json:",omitempty"` // what the process may open, from now on; nil: no limit
	Changes  bool           `json:",omitempty"` // write the UUIDs of domains that have changed to the pipe
	Consoles bool           `json:",omitempty"` // the process is for consoles
}

// A response is the result of a call.
type response struct {
	Err     string          `json:",omitempty"`
	Broken  bool            `json:",omitempty"` // Err says that there is no connection
	Result  json.RawMessage `json:",omitempty"`
	Console *consoleFrame   `json:",omitempty"` // not an answer: a console wrote
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

// writeRequest writes a request for a call.
func writeRequest(w io.Writer, method string, args []any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return writeFrame(w, request{method, body})
}

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
