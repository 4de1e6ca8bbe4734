package logfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/store"
)

// A Loss is damage of the file.
type Loss struct {
	Kind Kind `json:"kind"`
	// Found is when a start or a compaction found it, and Copy the path of the file as it was then; empty: it is still in use.
	Found time.Time `json:"found"`
	Copy  string    `json:"copy,omitempty"`
	// Offset and Bytes are of the damaged part of that file.
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
	// Transactions is how many are lost, known from the sequence numbers around them; 0: not known.
	Transactions uint64 `json:"transactions,omitempty"`
	// Keys are those of the lost changes that could still be read, perhaps with wrong bytes. If Exact, they are right, and all.
	Keys  []string `json:"keys,omitempty"`
	Exact bool     `json:"exact,omitempty"`
	// Cause is what is wrong, if it is not that part alone.
	Cause string `json:"cause,omitempty"`

	before int64 // records before this offset are older than what is lost
}

// A Kind says what a Loss means.
type Kind string

// The kinds of damage.
const (
	Lost      Kind = "lost"      // acknowledged changes cannot be read
	Torn      Kind = "torn"      // a write that a crash cut short: it was never acknowledged, and is removed
	Corrected Kind = "corrected" // nothing is lost
)

// String describes the loss for people.
func (l Loss) String() string {
	text := fmt.Sprintf("%d bytes at offset %d", l.Bytes, l.Offset)
	if l.Bytes == 0 {
		text = fmt.Sprintf("at offset %d", l.Offset)
	}
	switch {
	case l.Kind == Torn:
		return text + " are a write that a crash cut short: removed them, no machine was answered for it"
	case l.Kind == Corrected:
		return text + ": " + l.Cause
	case l.Cause != "":
		text += ": " + l.Cause
	default:
		text += " cannot be read"
	}
	if l.Transactions > 0 {
		changes := "changes are"
		if l.Transactions == 1 {
			changes = "change is"
		}
		text += fmt.Sprintf(": %d %s lost", l.Transactions, changes)
	}
	switch {
	case l.Exact:
		text += ", of " + named(l.Keys)
	case len(l.Keys) > 0:
		text += ", perhaps of " + named(l.Keys)
	}
	return text
}

// named writes keys for people, each once: the kind and what it is about, without what tells apart the keys of one machine.
func named(keys []string) string {
	var names []string
	for _, key := range keys {
		parts := strings.Split(key, "/")
		if name := strings.Join(parts[:min(len(parts), 2)], " "); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// lossPrefix begins the keys under which the file keeps what earlier files have lost. The place of such a record in the file
// says which records are older than the loss.
const lossPrefix = store.OwnPrefix + "loss/"

// op records the loss.
func (l Loss) op() store.Op {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // it has numbers and strings only
	}
	return store.Op{Key: fmt.Sprintf("%s%s-%016x", lossPrefix, l.Found.UTC().Format("20060102T150405.000000000"), l.Offset), Value: b}
}

// errFound is why a file takes no records in which load has found a loss.
var errFound = errors.New("the file is damaged, and could not be copied to a new one yet")

// maxLosses bounds how many losses of one file are kept apart.
const maxLosses = 32

// limit makes one loss of those beyond maxLosses.
func limit(found []Loss) []Loss {
	if n := maxLosses - 1; len(found) > n {
		rest := &found[n]
		for _, l := range found[n+1:] {
			rest.Bytes, rest.Transactions, rest.before = l.Offset+l.Bytes-rest.Offset, rest.Transactions+l.Transactions, l.before
			rest.Keys = append(rest.Keys, l.Keys...)
			rest.Cause = strings.Trim(rest.Cause+"; "+l.Cause, "; ")
		}
		rest.Keys = rest.Keys[:min(len(rest.Keys), maxKeys)]
		found = found[:maxLosses]
	}
	return found
}

// Losses returns what the store has lost and no admin has accepted yet, at this start or an earlier one, oldest first.
func (s *Store) Losses() []Loss {
	l, err := s.current()
	if err != nil {
		return nil
	}
	defer l.users.RUnlock()
	return l.losses()
}

func (l *log) losses() (all []Loss) {
	l.mu.Lock()
	index, found := l.index.Copy(), l.found
	l.mu.Unlock()
	index.Ascend(lossPrefix, func(key string, where location) bool {
		if !strings.HasPrefix(key, lossPrefix) {
			return false
		}
		var loss Loss
		b, err := l.value(key, where, nil)
		if err == nil {
			err = json.Unmarshal(b, &loss)
		}
		if err != nil {
			loss = Loss{Kind: Lost, Cause: "the description of an earlier loss is damaged"}
		}
		loss.before = where.at
		all = append(all, loss)
		return true
	})
	return append(all, found...)
}

// MarkLost counts records as lost that their owner cannot decode. As with other damage, the file is renamed, and what is left is copied
// to a new one. If the disk does not take that, every commit fails until it does.
func (s *Store) MarkLost(why string, keys ...string) error {
	s.writing <- struct{}{}
	l, err := s.current()
	if err != nil {
		<-s.writing
		return err
	}
	l.lose(why, keys)
	s.health.failed(l.broken)
	l.users.RUnlock()
	<-s.writing

	s.mu.Lock()
	busy := s.compacting // that compaction will be repeated
	s.compacting = true
	s.mu.Unlock()
	if !busy && s.tryCompact(func() bool { return true }) {
		s.repeatCompaction(s.cfg.retryBroken)
	}
	return nil
}

// lose removes records from the index. The caller holds writing.
func (l *log) lose(why string, keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	loss := Loss{Kind: Lost, Found: time.Now(), Cause: "not decodable: " + why, Exact: len(keys) <= maxKeys, before: l.end}
	for _, key := range keys {
		where, ok := l.index.Get(key)
		if !ok {
			continue
		}
		l.remove(key)
		if loss.Transactions == 0 {
			loss.Offset = where.at
		}
		loss.Bytes, loss.Transactions = loss.Bytes+int64(where.size), loss.Transactions+1
		if len(loss.Keys) < maxKeys {
			loss.Keys = append(loss.Keys, key)
		}
	}
	l.found = append(slices.Clone(l.found), loss)
	if l.broken == nil {
		l.broken = errFound
	}
}

// Doubtful reports whether key had, perhaps, another value than it has now, or a value where it has none: a change of it may be
// among those lost, and it was not written since. It is false for every key of a store that has lost nothing.
func (s *Store) Doubtful(key string) bool {
	l, err := s.current()
	if err != nil {
		return false
	}
	defer l.users.RUnlock()
	losses := l.losses()
	l.mu.RLock()
	where, ok := l.index.Get(key)
	l.mu.RUnlock()
	return slices.ContainsFunc(losses, func(loss Loss) bool {
		newer := ok && where.at >= loss.before
		return !newer && (!loss.Exact || slices.Contains(loss.Keys, key))
	})
}

// AcceptLosses forgets the losses: an admin has seen them, and goes on with what there is. The damaged files stay.
func (s *Store) AcceptLosses(ctx context.Context) error {
	var t store.Txn
	err := s.Scan(ctx, lossPrefix, func(key string, _ []byte) error {
		t.Then = append(t.Then, store.Op{Key: key, Delete: true})
		return nil
	})
	if err != nil || len(t.Then) == 0 {
		return err
	}
	return s.Commit(ctx, t)
}
