package rtnetlink

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestConn: the kernel's reply, and its refusals, are those of the request.
func TestConn(t *testing.T) {
	netns.Need(t, "root")
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	link := func(index uint32) []byte {
		return binary.NativeEndian.AppendUint32(make([]byte, 4), index)
	}
	body := func(index uint32) []byte { return append(link(index), make([]byte, unix.SizeofIfInfomsg-8)...) }
	name := ""
	reply, err := c.Get(unix.RTM_GETLINK, unix.RTM_NEWLINK, body(1), unix.SizeofIfInfomsg)
	for kind, value := range reply.Attrs() {
		if kind == unix.IFLA_IFNAME {
			name = unix.ByteSliceToString(value)
		}
	}
	if err != nil || name != "lo" {
		t.Errorf("the first interface is %q, %v", name, err)
	}
	if _, err := c.Get(unix.RTM_GETLINK, unix.RTM_NEWLINK, body(1<<30), unix.SizeofIfInfomsg); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that does not exist: %v", err)
	}
	address := AppendAttr(append([]byte{unix.AF_INET, 32, 0, 0}, binary.NativeEndian.AppendUint32(nil, 1)...), unix.IFA_LOCAL, []byte{127, 0, 0, 9})
	if err := c.Change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, address); err != nil {
		t.Errorf("add: %v", err)
	}
	if err := c.Change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, address); !errors.Is(err, fs.ErrExist) {
		t.Errorf("add again: %v", err)
	}
	if err := c.Change(unix.RTM_DELADDR, 0, address); err != nil {
		t.Errorf("remove: %v", err)
	}
}

// FuzzParse: what parse finds lies in the bytes that it was given, and attributes made by AppendAttr come back.
func FuzzParse(f *testing.F) {
	f.Add([]byte{}, uint16(1), []byte("value"))
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint16(unix.IFA_LOCAL), []byte{10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte, kind uint16, value []byte) {
		c := &Conn{seq: 7}
		if m, _, err := c.parse(b, unix.NLMSG_ERROR, 4); err == nil && len(m.Head)+len(m.rest) > len(b) {
			t.Errorf("%d bytes of %d", len(m.Head)+len(m.rest), len(b))
		}
		for _, v := range (Message{rest: b}).Attrs() {
			if len(v) > len(b) {
				t.Errorf("an attribute of %d bytes in %d", len(v), len(b))
			}
		}
		if len(value) > 1<<10 {
			value = value[:1<<10]
		}
		attrs := AppendAttr(AppendAttr(nil, kind, value), 1, []byte{2})
		var got [][]byte
		for _, v := range (Message{rest: attrs}).Attrs() {
			got = append(got, v)
		}
		if len(got) != 2 || string(got[0]) != string(value) || len(got[1]) != 1 || len(attrs)%unix.NLMSG_ALIGNTO != 0 {
			t.Errorf("%x became %x", value, got)
		}
	})
}
