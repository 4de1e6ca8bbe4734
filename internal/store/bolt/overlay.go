package bolt

const (
	chunkSize = 256     // entries
	minSlab   = 4 << 10 // bytes; small labs stay small
	maxSlab   = 64 << 10
)

// An entry is one write of one key. It never changes once readers may see it.
type entry struct {
	key   string
	value []byte // in a slab; nil: the key is deleted
	prev  int32  // the older write of the same key in this layer, or -1
}

type chunk [chunkSize]entry

// A layer holds, in the order in which they were made, the writes of one epoch: those that one journal file holds. Writes at
// and after durable are in flight: the committer sees them, readers do not.
//
// Entries are only ever added, so that a reader who knows a length needs no lock to read up to it.
type layer struct {
	epoch   uint64
	latest  map[string]int32
	chunks  []*chunk
	count   int
	durable int
	slab    []byte // what is left of the newest slab
	slabCap int
}

func newLayer(epoch uint64) *layer { return &layer{epoch: epoch, latest: map[string]int32{}} }

func (l *layer) at(i int) *entry { return &l.chunks[i/chunkSize][i%chunkSize] }

// room returns memory for a record of up to n bytes. The values of entries stay where their record was made.
func (l *layer) room(n int) []byte {
	if n > len(l.slab) {
		l.slabCap = min(max(2*l.slabCap, minSlab), maxSlab)
		l.slab = make([]byte, max(n, l.slabCap))
	}
	return l.slab[:0:n]
}

// use takes what a record needed from the slab.
func (l *layer) use(n int) { l.slab = l.slab[n:] }

// add adds a write in flight.
func (l *layer) add(key string, value []byte) {
	if l.count == len(l.chunks)*chunkSize {
		l.chunks = append(l.chunks, new(chunk))
	}
	prev, ok := l.latest[key]
	if !ok {
		prev = -1
	}
	*l.at(l.count) = entry{key: key, value: value, prev: prev}
	l.latest[key] = int32(l.count)
	l.count++
}

// publish makes the writes in flight visible.
func (l *layer) publish() { l.durable = l.count }

// undo takes the writes in flight back.
func (l *layer) undo() {
	for l.count > l.durable {
		l.count--
		e := l.at(l.count)
		if e.prev < 0 {
			delete(l.latest, e.key)
		} else {
			l.latest[e.key] = e.prev
		}
		*e = entry{}
	}
}

// find returns the newest of the first n writes that wrote key, or nil.
func (l *layer) find(key string, n int) *entry {
	i, ok := l.latest[key]
	for ok && int(i) >= n {
		i = l.at(int(i)).prev
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return l.at(int(i))
}

// A snapshot is what a layer held at one moment. It needs no lock.
type snapshot struct {
	chunks []*chunk
	count  int
}

func (l *layer) snapshot() snapshot { return snapshot{l.chunks, l.durable} }
