package leases

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// A Change is one lease to be made durable.
type Change struct {
	// Lease is the new state: Active, Released or Declined. Times are cut to whole seconds. A machine that sends no host name keeps
	// the one that it has. Commit sets Unnamed if another machine with a lease has the name.
	Lease
	// Subnet is where the machine has one address at most: when it gets one, its other one there is removed.
	Subnet netip.Prefix
	// Reserved says that the lab reserves the address for this machine, whichever machine has a lease of it. The MACs of one
	// host may take turns on it.
	Reserved bool
	// Exists says that the machine is known to exist: an imported lease.
	Exists bool
	// Removed is set by Commit to the machine's other address in Subnet whose lease this change removed; zero: none.
	Removed netip.Addr
	// NameConflict is set by Commit to the lease of the machine that has the host name, if this one was not known to want it.
	NameConflict Lease
	// Err is the outcome: nil once the lease is durable and visible; ErrLeased, ErrStale, or the store's.
	Err error
}

// lockedChanges is how many changes are worked on before others may use the book.
const lockedChanges = 32

// A committer is the scratch memory of Commit.
type committer struct {
	touched map[uint64]struct{}  // addresses and machines of this round
	names   map[nameHash]*Change // that get a DNS name in this round
	planned []planned
	later   []*Change
	txns    []store.Txn // of planned, one by one
	conds   []store.Cond
	ops     []store.Op
	buf     []byte // what conds and ops consist of
}

// A planned change waits for the store.
type planned struct {
	*Change // nil: remove the address
	addr    uint32
	old     uint32 // another address to remove, 0: none
	value   []byte // the new record; nil: none
	raw     []byte // the record in the store, if it was read; nil: as in memory
	settled bool   // visible, or failed
}

// Commit makes changes durable, all with one sync, then visible, and sets the outcome of each. Concurrent calls take turns.
// Changes of one call that touch the same machine or address happen in their order, and take a sync each.
func (b *Book) Commit(ctx context.Context, changes []*Change) {
	b.commits.Lock()
	defer b.commits.Unlock()
	for _, c := range changes {
		c.Err = c.check()
	}
	for len(changes) > 0 {
		later := append([]*Change(nil), b.plan(changes)...)
		_ = b.carryOut(ctx) // each change has its outcome
		changes = later
	}
}

func (c *Change) check() error {
	switch {
	case !c.Addr.Unmap().Is4():
		return fmt.Errorf("commit lease: %s is not an IPv4 address", c.Addr)
	case !c.State.stored():
		return fmt.Errorf("commit lease of %s: %s is not stored", c.Addr, c.State)
	}
	return nil
}

// plan decides about changes and returns those that must wait for others before them. Changes that are refused, or change
// nothing, have their outcome already.
func (b *Book) plan(changes []*Change) []*Change {
	k := &b.committer
	clear(k.touched)
	clear(k.names)
	now := seconds(b.now())
	for rest := changes; len(rest) > 0; {
		n := min(lockedChanges, len(rest))
		b.mu.Lock()
		for _, c := range rest[:n] {
			b.planLocked(c, now)
		}
		b.mu.Unlock()
		rest = rest[n:]
	}
	return k.later
}

func (b *Book) planLocked(c *Change, now uint32) {
	if c.Err != nil {
		return
	}
	k := &b.committer
	p := planned{Change: c}
	p.addr, _ = addr4(c.Addr)
	b.decideNameLocked(k, c, now)
	b.decideLocked(k, &p)
	switch {
	case !k.touch(p.addr, p.old, c.MAC):
		k.later = append(k.later, c)
	case b.leasedToOtherLocked(c, p.addr, now):
		c.Err = ErrLeased
	case p.old == 0 && b.sameLocked(p.addr, p.value):
		b.applyLocked(&p, now) // a repeated request
	default:
		k.planned = append(k.planned, p)
	}
}

// decideLocked finds the other address that a change removes, and encodes the record.
func (b *Book) decideLocked(k *committer, p *planned) {
	p.old = 0
	if p.State != Declined { // which the machine does not have
		if i := b.bindingLocked(p.MAC, netOf(p.Subnet)); i != 0 && b.slots.at(i).addr != p.addr {
			p.old = b.slots.at(i).addr
		}
	}
	if p.State == Released && p.old != 0 { // the machine has another address now, which is the one to remember
		p.old, p.value = 0, nil
		return
	}
	s := stampOf(&p.Lease)
	s.unverified = b.unverifiedLocked(p)
	from := len(k.buf)
	k.buf = appendTexts(appendStamp(k.buf, s), &p.Lease)
	p.value = k.buf[from:len(k.buf):len(k.buf)]
}

// decideNameLocked decides which host name a change stores, and whether it is the machine's DNS name: the first machine that
// has a lease with it keeps it. A machine whose firmware or installer sends none keeps its name for the system that follows.
func (b *Book) decideNameLocked(k *committer, c *Change, now uint32) {
	if c.State != Active {
		return
	}
	has := ""
	if i := b.bindingLocked(c.MAC, netOf(c.Subnet)); i != 0 && b.slots.at(i).live(now) {
		var inDNS bool
		if has, inDNS = nameOf(b.slots.at(i).blob); c.Hostname == "" {
			c.Hostname, c.Unnamed = has, c.Unnamed || !inDNS
		}
	}
	if c.Hostname == "" || c.Unnamed {
		return
	}
	h, holder := b.hashName(c.Hostname), Lease{}
	if i := b.nameHolderLocked(c.Hostname, c.MAC, now); i != 0 {
		holder = b.leaseLocked(i)
	} else if first := k.names[h]; first != nil && first.MAC != c.MAC {
		holder = first.Lease
	} else {
		k.names[h] = c
		return
	}
	if c.Unnamed = true; has != c.Hostname {
		c.NameConflict = holder
	}
}

// touch marks what a change touches. It reports false if some of that was touched already.
func (k *committer) touch(a, old uint32, m lab.MAC) bool {
	machine := uint64(1) << 63
	for i, c := range m {
		machine |= uint64(c) << (8 * i)
	}
	before := len(k.touched)
	k.touched[uint64(a)], k.touched[machine] = struct{}{}, struct{}{}
	want := before + 2
	if old != 0 {
		k.touched[uint64(old)] = struct{}{}
		want++
	}
	return len(k.touched) == want
}

// sameLocked reports whether the book has just that record already.
func (b *Book) sameLocked(a uint32, value []byte) bool {
	i := b.findLocked(a)
	if i == 0 || value == nil {
		return i == 0 && value == nil
	}
	e := b.slots.at(i)
	s, blob, err := parseRecord("", value)
	return err == nil && s == e.stamp() && blob == e.blob
}

// carryOut commits the planned changes and makes the durable ones visible. It returns the errors of the store.
func (b *Book) carryOut(ctx context.Context) error {
	k := &b.committer
	b.addTxns(k.planned)
	var errs []error
	if len(k.txns) > 0 {
		errs = b.store.CommitAll(ctx, k.txns)
	}
	for i, err := range errs {
		p := &k.planned[i]
		if errors.Is(err, store.ErrConflict) { // another daemon was first
			err = b.commitAgain(ctx, p)
			p.settled = true
		}
		if errs[i] = err; err != nil {
			p.settled = true
			p.fail(err)
		}
	}
	b.apply(k.planned)
	err := errors.Join(errs...)
	k.reset(err != nil)
	return err
}

// reset empties the scratch memory. A store that failed may still refer to what it was given, so that is not reused.
func (k *committer) reset(failed bool) {
	clear(k.planned)
	clear(k.later)
	clear(k.txns)
	clear(k.conds)
	clear(k.ops)
	k.planned, k.later, k.txns, k.conds, k.ops, k.buf = k.planned[:0], k.later[:0], k.txns[:0], k.conds[:0], k.ops[:0], k.buf[:0]
	if failed {
		k.txns, k.conds, k.ops, k.buf = nil, nil, nil, nil
	}
}

// addTxns makes a transaction of each change: it writes the lease if the record in the store is the one in memory, and removes
// the machine's other address.
func (b *Book) addTxns(all []planned) {
	k := &b.committer
	if need := 2 * len(all); cap(k.conds) < need { // what transactions point to must not move
		k.conds, k.ops = make([]store.Cond, 0, need), make([]store.Op, 0, need)
	}
	for len(all) > 0 {
		n := min(lockedChanges, len(all))
		b.mu.Lock()
		for i := range all[:n] {
			b.addTxnLocked(&all[i])
		}
		b.mu.Unlock()
		all = all[n:]
	}
}

func (b *Book) addTxnLocked(p *planned) {
	k := &b.committer
	from := len(k.conds)
	key := leaseKey(p.addr)
	cond := b.unchangedLocked(p.addr, key)
	if p.raw != nil {
		cond = store.Cond{Key: key, Value: p.raw}
	}
	k.conds = append(k.conds, cond)
	k.ops = append(k.ops, store.Op{Key: key, Value: p.value, Delete: p.value == nil})
	if p.old != 0 {
		key := leaseKey(p.old)
		k.conds = append(k.conds, b.unchangedLocked(p.old, key))
		k.ops = append(k.ops, store.Op{Key: key, Delete: true})
	}
	to := len(k.conds)
	k.txns = append(k.txns, store.Txn{If: k.conds[from:to:to], Then: k.ops[from:to:to]})
}

// unchangedLocked is the condition that the record in the store is the one in memory.
func (b *Book) unchangedLocked(a uint32, key string) store.Cond {
	i := b.findLocked(a)
	if i == 0 {
		return store.Cond{Key: key, Absent: true}
	}
	k, e := &b.committer, b.slots.at(i)
	from := len(k.buf)
	k.buf = append(appendStamp(k.buf, e.stamp()), e.blob...)
	return store.Cond{Key: key, Value: k.buf[from:len(k.buf):len(k.buf)]}
}

// fail sets the outcome. No caller waits for the removal of a lease.
func (p *planned) fail(err error) {
	if p.Change != nil {
		p.Err = err
	}
}

// apply makes durable changes visible.
func (b *Book) apply(all []planned) {
	now := seconds(b.now())
	for len(all) > 0 {
		n := min(lockedChanges, len(all))
		b.mu.Lock()
		for i := range all[:n] {
			if p := &all[i]; !p.settled {
				b.applyLocked(p, now)
			}
		}
		b.mu.Unlock()
		all = all[n:]
	}
}

// commitAgain reads the store, commits one change that another daemon's commit prevented, and makes it visible. The scratch
// memory of the round is still in use, so this has its own.
func (b *Book) commitAgain(ctx context.Context, refused *planned) error {
	mine := b.committer
	b.committer = committer{}
	defer func() { b.committer = mine }()

	p := planned{Change: refused.Change, addr: refused.addr}
	var err error
	if p.raw, err = b.refresh(ctx, p.addr); err != nil || p.Change == nil {
		return err // a lease that another daemon changed is not removed
	}
	if refused.old != 0 {
		if _, err := b.refresh(ctx, refused.old); err != nil {
			return err
		}
	}
	b.mu.Lock()
	leased := b.leasedToOtherLocked(p.Change, p.addr, seconds(b.now()))
	b.decideLocked(&b.committer, &p)
	b.mu.Unlock()
	if leased {
		return ErrLeased
	}
	one := []planned{p}
	b.addTxns(one)
	err = b.store.Commit(ctx, b.committer.txns[0])
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %s", ErrStale, addrOf(p.addr))
	}
	if err == nil {
		b.apply(one)
	}
	return err
}

// refresh reads the record of an address from the store into memory and returns it, nil for none.
func (b *Book) refresh(ctx context.Context, a uint32) ([]byte, error) {
	key := leaseKey(a)
	value, err := b.store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("read lease %s: %w", key, err)
	}
	now := seconds(b.now())
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dropLocked(a)
		return nil, nil
	}
	s, blob, err := parseRecord(key, value)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putLocked(a, s, blob, now)
	return value, nil
}
