package dedup

import "github.com/rdmakv/rdmakv/store/internal/base"

// An owner is what one owner has in a stripe. A stripe that is full makes room
// where there is too much: with the owner that has just come, if it has more than an
// equal part, else with the one that has most. So an owner with no more than its part
// loses nothing to others; and one that is alone has all of the stripe.
type owner struct {
	id uint32
	n  int // entries
	// The list of entries by use: newest is next of the root, oldest is prev.
	root entry
	// early is the last use of the newest entry that had to go before its
	// time, or neverEarly.
	early int64
}

// owner returns the owner of a number. Caller holds mu.
func (st *stripe) owner(id uint32) *owner {
	o := st.owners[id]
	if o == nil {
		o = &owner{id: id, early: neverEarly}
		o.root.prev, o.root.next = &o.root, &o.root
		st.owners[id] = o
	}
	return o
}

// earlyOf says up to when nothing can be told of requests of an owner that are not
// known. Caller holds mu.
func (st *stripe) earlyOf(id uint32) int64 {
	if o := st.owners[id]; o != nil {
		return max(st.early, o.early)
	}
	return st.early
}

// add makes an entry, the newest of its owner. Caller holds mu.
func (st *stripe) add(k base.SlotKey, owner uint32) *entry {
	e := &entry{key: k, owner: st.owner(owner)}
	st.entries[k] = e
	e.owner.insert(e)
	return e
}

// use makes an entry the newest of its owner, which may be another than before: records
// from before there were owners are those of 0. Caller holds mu.
func (st *stripe) use(e *entry, owner uint32) {
	e.unlink()
	if e.owner.id != owner {
		e.owner = st.owner(owner)
	}
	e.owner.insert(e)
}

// shrink drops entries that were not used for longest, if there are too many, and
// returns how many; o is the owner that has just come. Caller holds mu.
func (st *stripe) shrink(o *owner) (dropped uint64) {
	for len(st.entries) > st.limit {
		if o.n <= st.limit/len(st.owners) {
			for _, other := range st.owners {
				if other.n > o.n {
					o = other
				}
			}
		}
		old := o.root.prev
		for old != &o.root && old.flying { // bounded by the writes in flight
			old = old.prev
		}
		if old == &o.root {
			return dropped
		}
		st.wasEarly(old)
		st.drop(old)
		dropped++
	}
	return dropped
}

// wasEarly notes that the record of an entry goes before its time. Caller holds mu.
func (st *stripe) wasEarly(e *entry) {
	if e.owner.early = max(e.owner.early, e.used); e.anyones {
		st.early = max(st.early, e.used)
	}
}

// drop takes an entry out. Caller holds mu.
func (st *stripe) drop(e *entry) {
	e.unlink()
	delete(st.entries, e.key)
}

// age drops what has been silent for too long, and owners of whom nothing is left to
// be known. Caller holds mu.
func (st *stripe) age(now int64) {
	for id, o := range st.owners {
		for e := o.root.prev; e != &o.root; {
			old := e
			e = e.prev
			if now-old.used <= int64(ForgetAfter/TickEvery) {
				break
			}
			if !old.flying {
				st.drop(old)
			}
		}
		if o.n == 0 && !lately(o.early, now) {
			delete(st.owners, id)
		}
	}
}

// lately says whether what had to go early may still be asked for.
func lately(early, now int64) bool {
	return early != neverEarly && now-early <= int64((ForgetAfter+2*margin)/TickEvery)
}

func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.owner.n--
}

// insert puts e behind the root, where the newest are.
func (o *owner) insert(e *entry) {
	e.prev, e.next = &o.root, o.root.next
	o.root.next.prev, o.root.next = e, e
	o.n++
}
