package httpd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const maxDetail = 200 // bytes of a path in an event: any client chooses it

// firmware serves a network boot program, below the path of the machine that asked for it.
func (b *Boot) firmware(w *reply, q *request) {
	f, err := b.deps.Firmware.Open(q.target.name)
	if err != nil {
		b.missing(w, q, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a regular file", fs.ErrPermission)
	}
	content, ok := f.(io.ReadSeeker)
	if err == nil && !ok {
		content, err = inMemory(f)
	}
	if err != nil {
		b.missing(w, q, err)
		return
	}
	b.transfer(w, q, sendable(content), info, event.FirmwareServed)
}

// inMemory reads a file that cannot seek. Network boot programs are small.
func inMemory(f fs.File) (io.ReadSeeker, error) {
	all, err := io.ReadAll(f)
	return bytes.NewReader(all), err
}

// file serves what profiles name and files/public/.
func (b *Boot) file(w *reply, q *request) {
	f, err := q.table.files.OpenFold(q.target.name)
	if err != nil {
		b.missing(w, q, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		b.missing(w, q, err)
		return
	}
	b.transfer(w, q, &fileContent{file: f.File, size: info.Size()}, info, event.FileServed)
}

// transfer sends content, or the requested range of it, and records the outcome: one event for each complete download. A range
// is recorded if it reaches the end of the file, so a download in parts is recorded once.
func (b *Boot) transfer(w *reply, q *request, content io.ReadSeeker, info fs.FileInfo, kind event.Kind) {
	h := w.Header()
	set(h, "Content-Type", contentType(info.Name()))
	if mod := info.ModTime(); !mod.IsZero() {
		tag := strconv.AppendInt(append(make([]byte, 0, 40), '"'), info.Size(), 16)
		tag = strconv.AppendInt(append(tag, '-'), mod.UnixNano(), 16)
		set(h, "Etag", string(append(tag, '"')))
	}
	http.ServeContent(w, q.Request, "", info.ModTime(), content)
	if q.Method == http.MethodHead || (w.code != http.StatusOK && w.code != http.StatusPartialContent) {
		return
	}
	err := w.finish()
	if err == nil && strconv.FormatInt(w.sent, 10) != h.Get("Content-Length") {
		err = errChanged
	}
	switch {
	case err != nil:
		b.aborted(w, q, err)
	case w.code == http.StatusOK || endsFile(h.Get("Content-Range"), info.Size()):
		b.record(q, event.Event{Kind: kind, Bytes: w.sent})
	}
}

// endsFile reports whether a Content-Range, "bytes 0-99/100", reaches the end of a file of that size.
func endsFile(contentRange string, size int64) bool {
	return strings.HasSuffix(contentRange, fmt.Sprintf("-%d/%d", size-1, size))
}

// contentType depends on the name alone: sniffing an image costs a read, and the system's mime.types varies. UEFI HTTP boot tells
// programs from disk images by it (UEFI 2.10, section 24.7.2.3.1).
func contentType(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".efi":
		return "application/efi"
	case ".iso":
		return "application/vnd.efi-iso"
	case ".img":
		return "application/vnd.efi-img"
	case ".json", ".ign":
		return "application/json"
	case ".txt", ".cfg", ".conf", ".ks", ".ipxe", ".yaml", ".yml", ".toml", ".sh", ".sha256", ".sig", ".asc":
		return "text/plain; charset=utf-8"
	case ".xml":
		return "application/xml"
	}
	return "application/octet-stream"
}

// missing answers 404 for a file that does not exist, 403 for one that may not be served, and 503, which makes an installer ask again, for one
// that is not pulled yet or cannot be opened now.
func (b *Boot) missing(w *reply, q *request, err error) {
	code := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, files.ErrAwaited):
	case errors.Is(err, fs.ErrNotExist):
		code = http.StatusNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrInvalid):
		code = http.StatusForbidden
	}
	refuse(w, code)
	b.record(q, event.Event{Kind: event.FileMissing, Err: files.TextOf(err), Reason: files.ReasonOf(err)})
}

// nowhere answers a request for a path that leads nowhere.
func (b *Boot) nowhere(w *reply, q *request, why string) {
	refuse(w, http.StatusNotFound)
	if q.URL.Path != SelfTestPath {
		b.record(q, event.Event{Kind: event.FileMissing, Err: why, Reason: event.NotFound})
	}
}

// errChanged is why a file was not sent whole.
var errChanged = errors.New("the file changed while it was sent")

// aborted records that an answer did not leave whole.
func (b *Boot) aborted(w *reply, q *request, err error) {
	e := event.Event{Kind: event.FileAborted, Bytes: w.sent, Err: err.Error(), Reason: event.Closed}
	e.Size, _ = strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64) // 0: not known
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.Err, e.Reason = "the client accepted no data for "+b.limits.Stall.String(), event.Stalled
	case errors.Is(err, errChanged):
		e.Reason = event.FileChanged
	}
	b.record(q, e)
}

// record records e with the machine, the path and the duration.
func (b *Boot) record(q *request, e event.Event) { b.deps.Events.Record(b.event(q, e)) }

func (b *Boot) event(q *request, e event.Event) event.Event {
	e.MAC, e.Addr, e.Detail, e.Dur = q.target.mac, q.from, q.target.String(), b.took(q)
	if e.MAC.IsZero() {
		e.MAC = b.whose(q)
	}
	e.Detail = lab.Shortened(e.Detail, maxDetail)
	return e
}

func (b *Boot) whose(q *request) lab.MAC {
	mac, _ := b.deps.Leases.MACOf(q.table.lab, q.from)
	return mac
}

func (b *Boot) took(q *request) time.Duration { return since(b.deps.Now, q.start) }

// mirror serves a file of an upstream archive. An installation fetches hundreds of them, so only errors are recorded.
func (b *Boot) mirror(w *reply, q *request) {
	m := q.table.mirrors[q.target.mirror]
	if m == nil {
		b.nowhere(w, q, "the lab has no mirror of this name")
		return
	}
	f, err := b.deps.Mirrors.Open(q.Context(), m, q.target.name, q.Method)
	if err != nil {
		b.noMirror(w, q, err)
		return
	}
	defer f.Close()
	h := w.Header()
	h.Set("X-Cache", string(f.Result))
	h.Set("Content-Type", cmp.Or(f.Type, contentType(path.Base(q.target.name))))
	setIf(h, "Etag", f.ETag)
	setIf(h, "Content-Encoding", f.Coding)
	http.ServeContent(w, q.Request, "", f.ModTime, sendable(f.Content))
	if q.Method == http.MethodHead {
		return
	}
	err = w.finish()
	f.Sent(w.sent)
	if err != nil {
		b.aborted(w, q, err)
	}
}

func setIf(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// noMirror answers the error of a mirror. A file missing upstream is routine, because apt requests many optional files.
func (b *Boot) noMirror(w *reply, q *request, err error) {
	code := statusOf(err)
	switch {
	case code == http.StatusForbidden:
		b.record(q, event.Event{Kind: event.FileMissing, Err: "not to be served", Reason: event.NotServed})
	case code >= http.StatusInternalServerError:
		e := b.event(q, event.Event{Kind: event.MirrorFailed, Mirror: q.target.mirror, Err: lab.Shortened(err.Error(), maxDetail)})
		e.Detail = lab.Shortened(q.target.name, maxDetail)
		b.deps.Events.Record(e)
	}
	b.deps.Log.Debug("file of a mirror not served", keyPath, q.target.String(), keyStatus, code, keyErr, err)
	refuse(w, code)
}
