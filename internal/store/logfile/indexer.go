package logfile

// An indexer puts the operations of a file into the index of its log, in their order, on a goroutine of its own: while one batch of
// them is put in, the next one is read and checked.
type indexer struct {
	next  indexBatch
	full  chan indexBatch
	empty chan indexBatch
	done  chan struct{}
}

// An indexBatch is some operations. Their keys become one string, which stays in memory as long as one of these keys does: that is
// less to allocate and to collect than one string for each.
type indexBatch struct {
	keys []byte
	ops  []indexOp
}

type indexOp struct {
	keyEnd  int // in keys; it begins where the one before ends
	where   location
	deletes bool
}

// indexBatchSize is how many operations are handed over at once.
const indexBatchSize = 256

// newIndexer returns the indexer of a log that nobody else uses until finish returns.
func newIndexer(l *log) *indexer {
	x := &indexer{full: make(chan indexBatch, 4), empty: make(chan indexBatch, 4), done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for b := range x.full {
			b.putInto(l)
			select {
			case x.empty <- indexBatch{b.keys[:0], b.ops[:0]}:
			default:
			}
		}
	}()
	return x
}

func (b *indexBatch) putInto(l *log) {
	keys, from := string(b.keys), 0
	for _, op := range b.ops {
		l.set(keys[from:op.keyEnd], op.deletes, op.where)
		from = op.keyEnd
	}
}

// add puts in an operation, whose value begins at that offset of the file.
func (x *indexer) add(op *parsedOp, at int64) {
	b := &x.next
	b.keys = append(b.keys, op.key...)
	b.ops = append(b.ops, indexOp{len(b.keys), location{at, uint32(len(op.value)), sum(op.value)}, op.deletes})
	if len(b.ops) < indexBatchSize {
		return
	}
	x.full <- *b
	select {
	case x.next = <-x.empty:
	default:
		x.next = indexBatch{}
	}
}

// finish waits until all operations are in the index.
func (x *indexer) finish() {
	x.full <- x.next
	close(x.full)
	<-x.done
}
