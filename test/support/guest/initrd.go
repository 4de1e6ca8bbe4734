package guest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
)

// writeInitrd writes the initial file system: busybox, the modules and two scripts.
func writeInitrd(path string, modules []module) error {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	zip, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return err
	}
	a := archive{w: zip}
	for _, dir := range []string{"bin", "dev", "etc", "modules", "proc", "sys", "tmp"} {
		a.add(dir, 0o040755, nil)
	}
	a.add("bin/busybox", 0o100755, busybox)
	a.add("init", 0o100755, initScript)
	a.add("lease.sh", 0o100755, leaseScript)
	a.addNode("dev/console", 0o020600, 5, 1)
	var order []string
	for _, m := range modules {
		a.add("modules/"+m.name, 0o100644, m.body)
		order = append(order, m.name)
	}
	a.add("modules/order", 0o100644, []byte(strings.Join(order, "\n")+"\n"))
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, buf.Bytes(), 0o644)
}

// An archive writes cpio's "newc" format, the one that Linux unpacks. The first error stays.
type archive struct {
	w     io.Writer
	inode int
	err   error
}

func (a *archive) add(name string, mode uint32, body []byte) { a.entry(name, mode, 0, 0, body) }

func (a *archive) addNode(name string, mode, major, minor uint32) {
	a.entry(name, mode, major, minor, nil)
}

func (a *archive) entry(name string, mode, major, minor uint32, body []byte) {
	if a.err != nil {
		return
	}
	a.inode++
	const uid, gid, links, mtime, dev = 0, 0, 1, 0, 0
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, uid, gid, links, mtime, len(body), dev, dev, major, minor, len(name)+1, 0, name)
	_, a.err = a.w.Write(append(pad([]byte(head)), pad(body)...))
}

// pad returns b followed by zeros up to a multiple of four bytes.
func pad(b []byte) []byte {
	return append(b[:len(b):len(b)], make([]byte, (4-len(b)%4)%4)...)
}
