package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

// Key is where a store keeps its own name.
const Key = "store-id"

// hostsKey is where a store keeps MACs of hosts of its lab, as a JSON array of at most maxHosts.
const (
	hostsKey = "store-hosts"
	maxHosts = 64
)

// A name is what a store and its markers have in common.
type name struct {
	ID string `json:"id"`
	// Count grows with each start, and after installs: a copy of the store that was put back has a smaller one. Markers never have a larger
	// one than the store has on disk.
	Count uint64 `json:"starts"`
}

// A record is what the store has below Key.
type record struct {
	name
	Since time.Time `json:"since"`
	// New says that Served was not called yet.
	New bool `json:"new,omitempty"`
	// Restored says that an admin has put a backup in its place: it is the right one, whatever the markers name.
	Restored bool `json:"restored,omitempty"`
	// Replaces are the stores whose loss an admin has accepted: a marker that cannot be rewritten still names them.
	Replaces []string `json:"replaces,omitempty"`
	// Lost is why there was a store before, where no marker shows that.
	Lost string `json:"lost,omitempty"`
}

// maxReplaces bounds how many lost stores are remembered.
const maxReplaces = 16

// An Identity is what was found out about a store. It is safe for concurrent use.
type Identity struct {
	store   store.Store
	markers []*marker

	writing sync.Mutex // held by what commits and writes markers, which a disk that hangs delays

	mu     sync.Mutex // of what follows, and of the content of markers; never held while a disk is waited for
	record record
	hosts  []string // MACs of the lab
	lost   string   // why it is no continuation of what the markers name; empty: it is
}

// Find compares the store with the MACs of the lab's hosts, and with the markers at these paths. An empty store is lost, too, if left is the path of
// something that only the user of a former store makes; empty: there is nothing. Find names an empty store at once, and counts a name that cannot be
// decoded as lost; else it writes nothing.
func Find(ctx context.Context, s store.Store, hosts []string, left string, paths ...string) (*Identity, error) {
	i := &Identity{store: s, hosts: hosts}
	for _, path := range paths {
		i.markers = append(i.markers, readMarker(path))
	}
	value, err := s.Get(ctx, Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return i, i.findUnnamed(ctx, left)
	case err != nil:
		return nil, fmt.Errorf("read the name of the store: %w", err)
	}
	if err := json.Unmarshal(value, &i.record); err != nil {
		var bad store.Undecodable
		bad.Add(Key, fmt.Errorf("read the name of the store: %w", err))
		if err := bad.MarkLost(s); err != nil {
			return nil, err
		}
		return i, i.findUnnamed(ctx, left)
	}
	if i.record.Restored {
		i.record = i.record.accepted(i.markers)
	} else {
		i.lost = cmp.Or(i.compare(), i.compareHosts(ctx), i.record.Lost)
	}
	return i, nil
}

// Restored returns the value of Key for a store that is restored from a backup with that value, which may be nil: the next start takes it
// for the right one.
func Restored(saved []byte) ([]byte, error) {
	r := record{name: name{ID: rand.Text()}, Since: time.Now().UTC()}
	if saved != nil {
		if err := json.Unmarshal(saved, &r); err != nil {
			return nil, fmt.Errorf("read the name of the store in the backup: %w", err)
		}
	}
	r.Restored, r.New = true, false
	return json.Marshal(r)
}

// errFound ends a scan.
var errFound = errors.New("found")

// findUnnamed judges a store without a name: a new one, or one that was damaged or replaced.
func (i *Identity) findUnnamed(ctx context.Context, left string) error {
	i.record = record{name: name{ID: rand.Text()}, Since: time.Now().UTC()}
	err := i.store.Scan(ctx, "", func(string, []byte) error { return errFound })
	if err != nil && !errors.Is(err, errFound) {
		return fmt.Errorf("read the store: %w", err)
	}
	empty := err == nil
	m := i.anyMarker()
	if m == nil {
		m = i.movedMarker()
	}
	switch {
	case m == nil && empty && left != "":
		i.record.Lost = noState(left)
		i.lost = i.record.Lost
	case m == nil && empty:
		i.record.New = true
		_ = i.commit(ctx, i.record) // before anything else is written: a start that fails is no damage. If the disk takes no writes, Keep says so
	case m == nil:
		i.lost = "the state database has no name: it was damaged"
	case empty:
		i.lost = noState(m.path)
	default:
		i.lost = fmt.Sprintf("the state database has no name, but %s names one: it is another database, or it was damaged", m.path)
	}
	return nil
}

func noState(path string) string {
	return fmt.Sprintf("the state folder has no state, but %s shows that there was one", path)
}

// anyMarker returns a marker that exists, even one that cannot be read: it shows that there was a store.
func (i *Identity) anyMarker() *marker {
	n := slices.IndexFunc(i.markers, func(m *marker) bool { return m.exists })
	if n < 0 {
		return nil
	}
	return i.markers[n]
}

// movedMarker returns a marker of this lab from before it was renamed or moved; nil: there is none.
func (i *Identity) movedMarker() *marker {
	for _, own := range i.markers {
		if filepath.Base(own.path) == InFolder {
			continue
		}
		if m := movedMarker(own.path, i.hosts); m != nil {
			return m
		}
	}
	return nil
}

// compare returns why the store is not the one that the markers name. A marker that cannot be read names none.
func (i *Identity) compare() string {
	for _, m := range i.markers {
		switch {
		case m.name.ID == "" || slices.Contains(i.record.Replaces, m.name.ID):
		case m.name.ID != i.record.ID:
			return fmt.Sprintf("the state database is another one than %s names", m.path)
		case m.name.Count > i.record.Count && store.Doubtful(i.store, Key):
			return fmt.Sprintf("the state database was damaged, and has lost the changes since it was as %s says", m.path)
		case m.name.Count > i.record.Count:
			return fmt.Sprintf("the state database is older than %s: a copy was put back, or its file system was not mounted at the last start", m.path)
		}
	}
	return ""
}

// compareHosts returns why the store is that of another lab: state folder and markers may have been exchanged together. A store without MACs,
// of an earlier version, and a lab without hosts tell nothing.
func (i *Identity) compareHosts(ctx context.Context) string {
	value, err := i.store.Get(ctx, hostsKey)
	var had []string
	if err != nil || json.Unmarshal(value, &had) != nil { // the next start writes it again
		return ""
	}
	if len(had) == 0 || len(i.hosts) == 0 || slices.ContainsFunc(i.hosts, func(mac string) bool { return slices.Contains(had, mac) }) {
		return ""
	}
	return fmt.Sprintf("the state database is of a lab with other hosts, such as %s: state and markers are of another lab, or all hosts were replaced while bootlab was stopped",
		had[0])
}

// Reloaded returns the write by which the store follows the lab to other hosts; false: it needs none.
func (i *Identity) Reloaded(hosts []string) (store.Op, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	same := slices.Equal(i.hosts, hosts)
	i.hosts = hosts
	return hostsOp(hosts), !same && i.lost == ""
}

func firstHosts(hosts []string) []string { return hosts[:min(len(hosts), maxHosts)] }

func hostsOp(hosts []string) store.Op {
	value, err := json.Marshal(firstHosts(hosts))
	if err != nil {
		panic(err) // strings
	}
	return store.Op{Key: hostsKey, Value: value}
}

// First reports whether the store is new, no marker shows that there was one before, and Served was not called.
func (i *Identity) First() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record.New
}

// Served notes that a daemon serves from the store, and that no admin has to be asked what it may install: its next start is not the first.
func (i *Identity) Served(ctx context.Context) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	next, _ := i.now()
	if !next.New {
		return nil
	}
	next.New = false
	return i.commit(ctx, next)
}

// now returns what is known of the store.
func (i *Identity) now() (r record, lost string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record, i.lost
}

// Lost returns why the store is no continuation of the one that was used before; empty: it is, or there was none.
func (i *Identity) Lost() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lost
}

// ID returns the name of the store.
func (i *Identity) ID() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record.ID
}

// Owner is who may rewrite the markers later; nil: the user of the process.
type Owner struct{ UID, GID int }

// Keep notes that the store is used now, in the store and then in the markers. A marker that cannot be written is no error; see Markers.
// Of a lost store it only writes the name: the markers go on to show the loss.
func (i *Identity) Keep(ctx context.Context, owner *Owner) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	next, lost := i.now()
	var with []store.Op
	if lost == "" {
		next.Count++
		with = append(with, i.hostsNow())
	}
	if err := i.commit(ctx, next, with...); err != nil {
		return err
	}
	if lost == "" {
		i.writeMarkers(owner)
	}
	return nil
}

// Advance notes that hosts were installed, in the store and then in the markers, so that a copy of the store that was made before shows at
// the next start. The installs themselves are in the store already: a crash in between makes no loss of it. Of a lost store it does nothing.
func (i *Identity) Advance(ctx context.Context) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	next, lost := i.now()
	if lost != "" {
		return nil
	}
	next.Count++
	if err := i.commit(ctx, next); err != nil {
		return err
	}
	i.writeMarkers(nil)
	return nil
}

// Accept takes the store for the right one, together with these writes, and then rewrites the markers.
func (i *Identity) Accept(ctx context.Context, with ...store.Op) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	next, _ := i.now()
	next = next.accepted(i.markers)
	next.Count++
	if err := i.commit(ctx, next, append(slices.Clone(with), i.hostsNow())...); err != nil {
		return err
	}
	i.mu.Lock()
	i.lost = ""
	i.mu.Unlock()
	i.writeMarkers(nil)
	return nil
}

// hostsNow is hostsOp of the lab.
func (i *Identity) hostsNow() store.Op {
	i.mu.Lock()
	defer i.mu.Unlock()
	return hostsOp(i.hosts)
}

// accepted returns r as the name of a store that comes after those that the markers name.
func (r record) accepted(markers []*marker) record {
	r.Replaces, r.Restored, r.Lost = slices.Clone(r.Replaces), false, ""
	for _, m := range markers {
		r.Count = max(r.Count, m.name.Count)
		if id := m.name.ID; id != "" && id != r.ID && !slices.Contains(r.Replaces, id) {
			r.Replaces = append(r.Replaces, id)
		}
	}
	r.Replaces = r.Replaces[max(0, len(r.Replaces)-maxReplaces):]
	return r
}

// commit stores r, together with other writes. The caller holds writing, or nobody else has i yet.
func (i *Identity) commit(ctx context.Context, r record, with ...store.Op) error {
	value, err := json.Marshal(r)
	if err == nil {
		err = i.store.Commit(ctx, store.Txn{Then: append(slices.Clone(with), store.Op{Key: Key, Value: value})})
	}
	if err != nil {
		return fmt.Errorf("write the name of the store: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.record = r
	return nil
}

// writeMarkers makes all markers name the store. The caller holds writing.
func (i *Identity) writeMarkers(owner *Owner) {
	i.mu.Lock()
	r, hosts := i.record, firstHosts(i.hosts)
	i.mu.Unlock()
	for _, m := range i.markers {
		err := writeMarker(m.path, r.name, hosts, owner)
		i.mu.Lock()
		if m.err = err; err == nil {
			m.name, m.exists, m.removed = r.name, true, false
		}
		i.mu.Unlock()
	}
}

// A Marker is the state of one marker.
type Marker struct {
	Path string
	Err  error // why it does not name this store; nil: it does
}

// Markers returns the state of each marker, as it was read or written last, or as the last Look found it.
func (i *Identity) Markers() (all []Marker) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.markers {
		err := m.err
		switch {
		case err == nil && m.removed && i.lost == "":
			err = ErrRemoved
		case err != nil || i.lost == "" || m.name.ID == i.record.ID:
		case m.name.ID == "":
			err = errors.New("missing; it is written when the state is accepted")
		default:
			err = errors.New("names the state database that was lost")
		}
		all = append(all, Marker{m.path, err})
	}
	return all
}

// ErrRemoved is that a marker was removed while its store is in use.
var ErrRemoved = errors.New("was removed")

// Look looks whether the markers that were written still exist. It hangs as their disks do.
func (i *Identity) Look() {
	removed := make([]bool, len(i.markers))
	for n, m := range i.markers {
		_, err := os.Lstat(m.path)
		removed[n] = errors.Is(err, fs.ErrNotExist)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, m := range i.markers {
		m.removed = removed[n] && m.name.ID == i.record.ID
	}
}

// Back reports whether the marker at path names the store that was lost: it is back. Where no marker says which one that was, it is any other.
// The error is that the marker cannot be read. It hangs as the disk does.
func (i *Identity) Back(path string) (bool, error) {
	m := readMarker(path)
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lost != "" && m.name.ID != "" && m.name.ID != i.record.ID &&
		(i.record.Lost != "" || slices.ContainsFunc(i.markers, func(own *marker) bool { return own.name.ID == m.name.ID })), m.err
}

// Expected returns why a start would find the store in file lost, as far as that shows without opening it: there is none, and a marker at
// one of these paths, or left as in Find, shows that there was one. Empty: nothing shows a loss.
func Expected(file, left string, paths ...string) string {
	info, err := os.Stat(file)
	if err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	for _, path := range paths {
		if m := readMarker(path); m.exists {
			return noState(m.path)
		}
	}
	if left != "" {
		return noState(left)
	}
	return ""
}
