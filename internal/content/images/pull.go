package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bootlab/bootlab/internal/host/file/replace"
)

// A Config is how images are pulled.
type Config struct {
	Dir      string        // the lab's files folder
	Parallel int           // files at a time; default 4
	Client   *http.Client  // default: one that keeps to HTTP_PROXY and HTTPS_PROXY
	Idle     time.Duration // without a byte until a connection is given up; default 30 s
	Retry    time.Duration // before the first try to go on, doubled each time; default 1 s
}

func (c Config) withDefaults() Config {
	c.Parallel, c.Idle, c.Retry = cmp.Or(c.Parallel, 4), cmp.Or(c.Idle, 30*time.Second), cmp.Or(c.Retry, time.Second)
	if c.Client == nil {
		c.Client = NewClient()
	}
	return c
}

// NewClient returns a client for large files: no time limit for the whole, limits for every step.
func NewClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // checksums are of what is there, not of what it unpacks to
	}}
}

// An Outcome is what a pull did to one item.
type Outcome string

// The outcomes.
const (
	Kept    Outcome = "kept"    // was there already
	Fetched Outcome = "fetched" // from its first byte
	Resumed Outcome = "resumed" // from where an earlier pull broke off
	Failed  Outcome = "failed"
)

// A Result is what became of one item.
type Result struct {
	Item
	Outcome Outcome       `json:"outcome"`
	Size    int64         `json:"size"`    // of the file, bytes
	Fetched int64         `json:"fetched"` // that came over the network, bytes
	Took    time.Duration `json:"took"`    // nanoseconds
	Err     string        `json:"err,omitempty"`
}

// A Progress shows how far each download is. The zero value is ready.
type Progress struct {
	mu    sync.Mutex
	items map[string]*Track
}

// A Track is how far one item is.
type Track struct {
	Path  string       // of the item, below the files folder
	Total atomic.Int64 // -1: not known
	Have  atomic.Int64 // bytes on disk
	Done  atomic.Bool  // it is over, well or not

	err atomic.Pointer[error]
}

// Err returns why the last attempt failed, until the next one begins; nil otherwise.
func (t *Track) Err() error {
	if err := t.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (t *Track) setErr(err error) { t.err.Store(&err) }

// Of returns the track of an item, which is made when it is first asked for.
func (p *Progress) Of(path string) *Track {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == nil {
		p.items = map[string]*Track{}
	}
	t := p.items[path]
	if t == nil {
		t = &Track{Path: path}
		t.Total.Store(-1)
		p.items[path] = t
	}
	return t
}

// Pull fetches what is not there or not right, and calls done with each result as it is known. The files of one image
// become visible together, when all of them are right. It returns an error if anything failed; what was fetched of it
// stays for the next pull.
func Pull(ctx context.Context, cfg Config, items []Item, p *Progress, done func(Result)) error {
	cfg = cfg.withDefaults()
	slots := make(chan struct{}, cfg.Parallel)
	var mu sync.Mutex
	var group errgroup.Group
	failed := 0
	for _, image := range byImage(items) {
		group.Go(func() error {
			results := pullImage(ctx, cfg, image, p, slots)
			mu.Lock()
			defer mu.Unlock()
			for _, r := range results {
				if r.Outcome == Failed {
					failed++
				}
				p.Of(r.Path).Done.Store(true)
				done(r)
			}
			return nil
		})
	}
	_ = group.Wait()
	if failed > 0 {
		return fmt.Errorf("%d of %d files could not be fetched; partial downloads are kept, and the next pull resumes them", failed, len(items))
	}
	return nil
}

func byImage(items []Item) (images [][]Item) {
	for i, item := range items {
		if i > 0 && items[i-1].Image == item.Image {
			images[len(images)-1] = append(images[len(images)-1], item)
			continue
		}
		images = append(images, []Item{item})
	}
	return images
}

// pullImage fetches the files of one image and gives them their names once all are right.
func pullImage(ctx context.Context, cfg Config, items []Item, p *Progress, slots chan struct{}) []Result {
	results := make([]Result, len(items))
	downloads := make([]*download, len(items))
	var wg sync.WaitGroup
	for n, i := range items {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			start := time.Now()
			d := &download{cfg: cfg, item: i, name: filepath.Join(cfg.Dir, filepath.FromSlash(i.Path)), track: p.Of(i.Path)}
			err := d.run(ctx)
			downloads[n], results[n] = d, d.result(err, time.Since(start))
		})
	}
	wg.Wait()
	defer func() {
		for _, d := range downloads {
			d.close()
		}
	}()
	for n := range results {
		if results[n].Outcome == Failed {
			return results // none of the others appears
		}
	}
	for n, d := range downloads {
		if err := d.appear(); err != nil {
			results[n] = d.result(err, results[n].Took)
		}
	}
	if doc := items[0].document; doc != nil {
		if err := replace.File(filepath.Join(cfg.Dir, filepath.FromSlash(items[0].Image), streamName), 0o644, replace.With(doc)); err != nil {
			results[0] = downloads[0].result(err, results[0].Took)
		}
	}
	return results
}

func (d *download) result(err error, took time.Duration) Result {
	r := Result{Item: d.item, Outcome: d.outcome, Size: d.track.Have.Load(), Fetched: d.fetched, Took: took}
	if err != nil {
		r.Outcome, r.Err = Failed, err.Error()
	}
	return r
}

var errBusy = errors.New("another pull fetches it: wait for that one")
