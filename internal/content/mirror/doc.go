// Package mirror is a caching proxy for upstream package archives, with a bounded disk cache.
//
// An immutable file (a package, by-hash/…) is downloaded once. Any other (Release, Packages, repodata) is revalidated by its
// ETag or date when it is older than the lab allows, and served stale while no upstream answers. Concurrent requests for a
// file share one download and read the file while it is written. The last bytes of a file are held back until it is complete
// and its checksum, if one is known, is verified: an incomplete file is never served as complete, and never cached.
//
//	c, err := mirror.New(mirror.Config{Dir: "/var/lib/bootlab/mirrors"}, mirror.Deps{Events: bus, Registerer: registry, Log: log, Now: time.Now})
//	go c.Run(ctx)                                                     // until ctx ends; downloads end with it
//	f, err := c.Open(r.Context(), lab.Mirror("debian"), "dists/stable/InRelease", http.MethodGet)
//	if err != nil { … }                                               // its HTTPStatus() is the status to answer
//	defer f.Close()
//	http.ServeContent(w, r, "", f.ModTime, f.Content)                 // an *os.File if it is complete: sendfile(2)
//
// It knows the mirrors of the lab and nothing else of it, listens on no socket, and follows redirects to http and https only.
// A file that does not fit or cannot be written is passed through, and an event reports it.
package mirror
