package httpd

import (
	"cmp"
	"net/http"
	"path"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// mirror serves a file of an upstream archive. An installation fetches hundreds of them, so that only trouble is told.
func (b *Boot) mirror(w *reply, q *request) {
	m := q.table.mirrors[q.target.mirror]
	if m == nil {
		refuse(w, http.StatusNotFound)
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
	http.ServeContent(w, q.Request, "", f.ModTime, f.Content)
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

// noMirror answers for a file that cannot be had. What is not there upstream is everyday life: apt asks for much that is
// optional. The mirror itself tells when upstream does not answer.
func (b *Boot) noMirror(w *reply, q *request, err error) {
	code := statusOf(err)
	if code == http.StatusForbidden {
		b.record(q, event.Event{Kind: event.FileMissing, Err: "not to be served"})
	}
	b.deps.Log.Debug("mirror", keyPath, q.target.String(), keyStatus, code, keyErr, err)
	refuse(w, code)
}
