package httpd

import (
	"sync"
	"time"
)

const (
	// pageKept is how old a page may be that is shown to another reader: less than what dashboards wait between two refreshes.
	pageKept = 2 * time.Second
	maxPages = 16 // kept at one time
)

// A pageCache renders a page once for all who ask for it at about the same time: a hundred open dashboards cost as much as one.
type pageCache struct {
	now func() time.Time

	mu    sync.Mutex
	pages map[string]*cachedPage
}

// A cachedPage is rendered, or being rendered.
type cachedPage struct {
	once sync.Once
	at   time.Time // when its rendering began, so that it is never older than it seems
	body []byte    // nil: it cannot be rendered
}

// get returns the page of that key, which is at most pageKept old and shows every change before. It must not be changed.
func (c *pageCache) get(key string, render func() []byte) []byte {
	p := c.page(key)
	p.once.Do(func() { p.body = render() }) // others that ask for it wait here
	return p.body
}

// page returns the page of that key as it is kept, or a new one.
func (c *pageCache) page(key string) *cachedPage {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	oldest := key
	for k, p := range c.pages {
		if age := now.Sub(p.at); age < 0 || age >= pageKept {
			delete(c.pages, k)
		} else if c.pages[oldest] == nil || p.at.Before(c.pages[oldest].at) {
			oldest = k
		}
	}
	if p := c.pages[key]; p != nil {
		return p
	}
	if len(c.pages) >= maxPages {
		delete(c.pages, oldest)
	}
	p := &cachedPage{at: now}
	c.pages[key] = p
	return p
}

// forget makes the next get of each page render it again.
func (c *pageCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.pages)
}

// A builder bounds how many large answers are built at one time.
type builder chan struct{}

// run calls build when there is a place.
func (b builder) run(build func() []byte) []byte {
	b <- struct{}{}
	defer func() { <-b }()
	return build()
}
