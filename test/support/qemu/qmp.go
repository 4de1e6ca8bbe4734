package qemu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"
)

// qmpTimeout bounds one conversation with the monitor.
const qmpTimeout = time.Minute

// Reset pushes the machine's reset button.
func (m *Machine) Reset(t testing.TB) {
	t.Helper()
	if err := m.command("system_reset"); err != nil {
		t.Fatalf("reset the machine: %v", err)
	}
}

// command gives the monitor one command that takes no arguments (QEMU Machine Protocol).
func (m *Machine) command(name string) error {
	conn, err := net.DialTimeout("unix", m.socket(), qmpTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(qmpTimeout)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	for _, execute := range []string{"qmp_capabilities", name} {
		if _, err := fmt.Fprintf(conn, "{\"execute\": %q}\n", execute); err != nil {
			return err
		}
		if err := qmpReply(r); err != nil {
			return fmt.Errorf("%s: %w", execute, err)
		}
	}
	return nil
}

// qmpReply reads up to the next reply; the greeting and events in between are passed over.
func qmpReply(r *bufio.Reader) error {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		var reply struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return err
		}
		switch {
		case reply.Error != nil:
			return fmt.Errorf("the monitor says: %s", reply.Error.Desc)
		case reply.Return != nil:
			return nil
		}
	}
}
