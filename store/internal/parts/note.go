package parts

import (
	"bytes"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Note takes in what a published write made of a key: value is what it put, if it has not
// removed the key. It is called in the order of the commits, and returns at once. key and value are only
// read. elsewhere: another replica has ordered it, which has let the upload begin.
func (r *Registry) Note(shard uint16, key, value []byte, removed bool, v layout.Version, elsewhere bool) {
	part, head := layout.IsPartKey(key), !removed && layout.IsHead(value)
	if !part && !head && r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if part {
		switch {
		case !removed:
			r.notePart(shard, key, value, elsewhere)
		case elsewhere:
			r.partRemoved(key)
		}
		return
	}
	var h layout.Head
	if head {
		var err error
		h, err = layout.ParseHead(value)
		head = err == nil
	}
	whole := false // the parts of the head are there
	for _, of := range r.byKey[string(key)] {
		u := r.uploads[of]
		switch {
		case head && of == h.ID && (u.state != going || elsewhere):
			// Elsewhere: who ordered it had removed none of its parts, and this store, which was about to, removes none any
			// more (Going).
			whole = true
			r.turn(u, live)
			u.heads = max(0, u.heads-1)
			u.sums, u.have, u.head, u.whole = nil, nil, xxh3.Hash(value), h.Total
		case u.state == live || u.state == found:
			r.turn(u, dying)
			u.sums, u.have = nil, nil
			u.at = r.cfg.Now()
		}
	}
	if head && !whole && r.looked {
		r.stray(Stray{Shard: shard, Key: bytes.Clone(key), Version: v})
	}
}

// notePart takes in a part, or the record of an upload. Caller holds mu.
func (r *Registry) notePart(shard uint16, key, value []byte, elsewhere bool) {
	id, n, ok := layout.ParsePartKey(key)
	u := r.uploads[id]
	switch {
	case ok && u == nil && n == layout.UploadPart && elsewhere:
		// Also during a look, because that may be behind its place.
		if u, ok := r.foundLocked(shard, key, value); ok {
			r.turn(u, open)
		}
	case !ok || u == nil || u.state == going || n > u.Parts():
		if ok && u == nil && !r.looked {
			return // the look will find it
		}
		r.stray(Stray{Shard: shard, Key: bytes.Clone(key)})
	case n == layout.UploadPart:
		u.ready = true
	default:
		if u.have != nil && u.have[n-1] == expected {
			u.have[n-1] = published
		}
		if elsewhere {
			u.at = r.cfg.Now() // where it was let pass, too
		}
	}
}

// partRemoved takes in that another replica has removed a part, or the record, which goes last: whoever leads the shard's group removes
// what is left. Caller holds mu.
func (r *Registry) partRemoved(key []byte) {
	id, n, ok := layout.ParsePartKey(key)
	switch u := r.uploads[id]; {
	case !ok || u == nil:
	case n == layout.UploadPart:
		r.goneLocked(id)
	case n <= u.Parts():
		r.turn(u, going)
		u.sums, u.have = nil, nil
	}
}

// stray notes a key that has to go. Caller holds mu.
func (r *Registry) stray(s Stray) {
	if len(r.strays) >= maxStrays {
		r.overflow = true
		return
	}
	r.strays = append(r.strays, s)
}

// Look begins the look after a start: all records and parts that the store has are to be told
// by Found and Part, then EndLook. needed: it was not done yet, or there were too many strays.
func (r *Registry) Look() (needed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	needed, r.overflow = !r.looked || r.overflow, false
	r.looking = r.forgets
	return needed
}

// LookAgain has the next Look say that it is needed: this store comes to remove what others removed before. Parts that were strays to
// it are looked for again.
func (r *Registry) LookAgain() {
	r.mu.Lock()
	r.overflow = true
	r.strays = slices.DeleteFunc(r.strays, func(s Stray) bool { return s.Version == 0 })
	r.mu.Unlock()
}

// Forget forgets all uploads of shards whose keys have given way to others. A look is needed then, and one that is under way
// does not count.
func (r *Registry) Forget(shards []uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, u := range r.uploads {
		if slices.Contains(shards, u.shard) {
			r.drop(id, u)
		}
	}
	r.strays = slices.DeleteFunc(r.strays, func(s Stray) bool { return slices.Contains(shards, s.Shard) })
	r.looked = false
	r.forgets++
}

// EndLook ends the look.
func (r *Registry) EndLook() {
	r.mu.Lock()
	r.looked = r.looking == r.forgets
	r.mu.Unlock()
}

// Found takes in the record of an upload that stands in the store. fresh: it was not known. Then
// the value of its key is to be read, after this call, and told by Settle. A record that
// makes no sense is a stray.
func (r *Registry) Found(shard uint16, key, record []byte) (id layout.UploadID, of layout.Upload, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _, _ = layout.ParsePartKey(key)
	if r.uploads[id] != nil {
		return id, of, false
	}
	u, ok := r.foundLocked(shard, key, record)
	if !ok {
		return id, of, false
	}
	return id, layout.Upload{Shape: u.Shape, Key: []byte(u.key)}, true
}

// foundLocked takes in the record of an upload that is not known. ok: it makes sense.
func (r *Registry) foundLocked(shard uint16, key, record []byte) (u *upload, ok bool) {
	id, n, ok := layout.ParsePartKey(key)
	of, err := layout.ParseUpload(record)
	if !ok || n != layout.UploadPart || err != nil {
		r.stray(Stray{Shard: shard, Key: bytes.Clone(key)})
		return nil, false
	}
	u = &upload{
		Shape: of.Shape, key: string(of.Key), shard: shard, state: found, ready: true, early: true, at: r.cfg.Now(),
		sums: make([]uint64, of.Parts()), have: make([]uint8, of.Parts()),
	}
	copy(u.keys[:], key)
	r.add(id, u)
	return u, true
}

// Settle says what the value was of the key of an upload that was found; nil: it has none. What was published
// since counts more.
func (r *Registry) Settle(id layout.UploadID, value []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.uploads[id]
	if u == nil || u.state != found {
		return
	}
	if h, err := layout.ParseHead(value); err == nil && h.ID == id {
		r.turn(u, live)
		u.sums, u.have, u.head, u.whole = nil, nil, xxh3.Hash(value), h.Total
		return
	}
	r.turn(u, open) // its client may be about to go on
	u.at = r.cfg.Now()
}

// FoundPart takes in a part that stands in the store: one of no upload is a stray.
func (r *Registry) FoundPart(shard uint16, key []byte) {
	id, n, ok := layout.ParsePartKey(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[id]; !ok || u == nil || n > u.Parts() {
		r.stray(Stray{Shard: shard, Key: bytes.Clone(key)})
	}
}

// Strays takes the keys that have to go.
func (r *Registry) Strays() (s []Stray) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, r.strays = r.strays, nil
	return s
}

// Back gives strays back that could not be removed.
func (r *Registry) Back(s []Stray) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range s {
		r.stray(one)
	}
}

// A Doomed upload is one whose parts have to go, and then its record.
type Doomed struct {
	ID    layout.UploadID
	Shard uint16
	Keys  layout.PartKeys
	Parts int
}

// Due returns uploads whose time is over, at most so many; nothing of them is let pass any more. Each
// goes by Gone, or comes again with the next call. hurry: there is no space, so keep counts for the
// parts of replaced values, which is to be a lease at least.
func (r *Registry) Due(most int, hurry bool, keep time.Duration, mine func(shard uint16) bool) (due []Doomed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.looked {
		return nil
	}
	if !hurry || keep > r.cfg.Keep {
		keep = r.cfg.Keep
	}
	now := r.cfg.Now()
	for id, u := range r.uploads {
		age := now.Sub(u.at)
		switch {
		case len(due) == most:
			return due
		case !mine(u.shard):
		case u.heads > 0 && now.Before(u.until): // a head that needs them is on its way
		case u.state == going, u.state == dying && age >= keep, u.state == open && age >= r.cfg.Idle:
			r.turn(u, going)
			u.sums, u.have = nil, nil
			due = append(due, Doomed{ID: id, Shard: u.shard, Keys: u.keys, Parts: u.Parts()})
		}
	}
	return due
}

// Going says whether the parts of an upload are to be removed still: in a group of replicas another one may have let its head pass.
func (r *Registry) Going(id layout.UploadID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.uploads[id]
	return u != nil && u.state == going
}

// Gone says that nothing is left of an upload in the store.
func (r *Registry) Gone(id layout.UploadID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.goneLocked(id)
}

// goneLocked is Gone. Caller holds mu.
func (r *Registry) goneLocked(id layout.UploadID) {
	u := r.uploads[id]
	if u == nil {
		return
	}
	r.collected += int64(u.Parts())
	r.drop(id, u)
}

// drop takes an upload out. Caller holds mu.
func (r *Registry) drop(id layout.UploadID, u *upload) {
	delete(r.uploads, id)
	r.n.Add(-1)
	r.turn(u, going)
	r.hold(u, -1, 0)
	ids := r.byKey[u.key]
	for i := range ids {
		if ids[i] == id {
			ids = append(ids[:i:i], ids[i+1:]...)
			break
		}
	}
	if len(ids) == 0 {
		delete(r.byKey, u.key)
	} else {
		r.byKey[u.key] = ids
	}
}

// A Value is one in parts that is there.
type Value struct {
	Shard uint16
	Key   []byte
	ID    layout.UploadID
	Keys  layout.PartKeys
	Parts int
}

// Live returns the ids of the values in parts that are there.
func (r *Registry) Live() (ids []layout.UploadID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, u := range r.uploads {
		if u.state == live {
			ids = append(ids, id)
		}
	}
	return ids
}

// Value returns a value in parts. ok: it is there.
func (r *Registry) Value(id layout.UploadID) (v Value, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.uploads[id]
	if u == nil || u.state != live {
		return v, false
	}
	return Value{u.shard, []byte(u.key), id, u.keys, u.Parts()}, true
}

// Lost says that the head of a value is gone, without a write that says so.
func (r *Registry) Lost(id layout.UploadID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[id]; u != nil && u.state == live {
		r.turn(u, dying)
		u.at = r.cfg.Now()
	}
}
