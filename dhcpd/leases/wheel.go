package leases

// A wheel is a timer wheel: bucket s has the slots that end in second s, modulo the size of the wheel. A slot that lasts
// longer than one turn is passed over once a turn. The slots of a bucket are a linked list.
type wheel struct {
	heads  [wheelSize]uint32
	swept  uint32 // all that ended until this second has expired
	cursor uint32 // the next slot of the bucket in progress, 0: none
}

// wheelSize is a little more than two hours: a lease of twelve hours is touched six times, and the buckets cost 32 KiB.
const wheelSize = 8192

func (b *Book) wheelPutLocked(i uint32) {
	e := b.slots.at(i)
	head := &b.wheel.heads[e.expiry%wheelSize]
	e.links = links{next: *head}
	if *head != 0 {
		b.slots.at(*head).prev = i
	}
	*head = i
}

func (b *Book) wheelRemoveLocked(i uint32) {
	e := b.slots.at(i)
	if b.wheel.cursor == i {
		b.wheel.cursor = e.next
	}
	if e.prev != 0 {
		b.slots.at(e.prev).next = e.next
	} else {
		b.wheel.heads[e.expiry%wheelSize] = e.next
	}
	if e.next != 0 {
		b.slots.at(e.next).prev = e.prev
	}
	e.links = links{}
}

// advanceLocked turns the wheel to now, but looks at no more than budget slots: a boot storm's leases end within the
// same seconds, and no packet may wait for all of them.
func (b *Book) advanceLocked(now uint32, budget int) {
	w := &b.wheel
	switch {
	case now < w.swept: // the clock was set back
		w.swept, w.cursor = now, 0
	case now-w.swept > wheelSize:
		w.swept, w.cursor = now-wheelSize, 0
	}
	for w.swept < now {
		if w.cursor == 0 {
			w.cursor = w.heads[(w.swept+1)%wheelSize]
		}
		for w.cursor != 0 {
			if budget == 0 {
				return
			}
			budget--
			i := w.cursor
			e := b.slots.at(i)
			w.cursor = e.next
			if e.expiry <= now {
				b.expireLocked(i)
			}
		}
		w.swept++
	}
}
