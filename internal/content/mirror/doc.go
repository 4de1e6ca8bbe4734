// Package mirror hands out files of upstream archives and keeps what it fetched, on disk and bounded.
//
// A file whose content belongs to its name (a package, by-hash/…) is fetched once. Any other (Release, Packages, repodata)
// is asked for again when it is older than the lab says, by its ETag or date, and given out stale while no upstream
// answers. However many readers ask at once, upstream is asked once, and all of them read along while the file is written.
// The last bytes of a file are held back until all of it is there and its checksum fits, where one is known: half a file is
// never given out as a whole, and never kept.
//
//	c, err := mirror.New(mirror.Config{Dir: "/var/lib/bootlab/mirrors"}, mirror.Deps{Events: bus, Metrics: registry, Log: log, Now: time.Now})
//	go c.Run(ctx)                                                     // until ctx ends; fetches end with it
//	f, err := c.Open(r.Context(), lab.Mirror("debian"), "dists/stable/InRelease", http.MethodGet)
//	if err != nil { … }                                               // its HTTPStatus() says what to answer
//	defer f.Close()
//	http.ServeContent(w, r, "", f.ModTime, f.Content)                 // an *os.File where all of it is there: sendfile(2)
//
// It knows no lab but the mirrors that it is handed, opens no socket to listen on, and follows no upstream beyond http and
// https. What it cannot keep (no room, a full disk) it passes through, and says so.
package mirror
