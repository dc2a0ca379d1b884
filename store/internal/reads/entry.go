package reads

import (
	"bytes"
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What entry says of an entry.
type entryKind uint8

const (
	entryFits     entryKind = iota
	entryLast               // it fits, and is, or will be got, of a later moment than the page
	entryTooLarge           // for what is left of the page, and it is not the first
	entryExpired            // it is not there any more
)

// room is what an entry may take of its page.
type room struct {
	left     int  // bytes
	keysOnly bool // the value is not asked for
	first    bool // nothing stands before it
}

// takes says whether a value of some length is to be read.
func (r room) takes(key []byte, valLen int) bool { return !r.keysOnly && len(key)+valLen <= r.left }

// entry reads the entry at a cursor. Its key is always set.
func (m *merge) entry(ctx context.Context, c *cursor, room room) (e ScanEntry, kind entryKind, err error) {
	e.Shard, e.Key = c.shard, bytes.Clone(c.key)
	switch {
	case c.inView && c.view.Entry().Gone:
		return e, entryExpired, nil
	case room.keysOnly && !room.first && len(e.Key) > room.left:
		return e, entryTooLarge, nil
	case c.inView:
		return m.newerEntry(ctx, c, e, room)
	}
	if rec, note, ok := c.base.Noted(); ok {
		return m.notedEntry(ctx, c, e, room, rec, int(note.Length))
	}
	size, apart := c.base.Size()
	e.ValLen = max(0, size-disk.RecordHeader)
	large := len(e.Key)+max(e.ValLen-8, 0) > room.left && !room.keysOnly // 8: it may have an expiry
	switch {
	case large && !room.first:
		return e, entryTooLarge, nil
	case room.keysOnly && apart && !m.expires:
		return e, entryFits, nil // leave it there
	case (room.keysOnly || large) && apart:
		// Not to be read for its times, either, where memory knows them.
		if info, expired, ok := m.inMemory(c, e.Key); ok {
			if expired {
				return e, entryExpired, nil
			}
			e.Version, e.Expiry, e.ValLen = info.Version, info.Expiry, info.ValLen
			return e.fitted(room)
		}
		if large {
			e.Omitted = true
			return e, entryLast, nil
		}
		m.apart -= size
	}
	return m.baseEntry(ctx, c, e, room)
}

// baseEntry reads a record of the base, and its value.
func (m *merge) baseEntry(ctx context.Context, c *cursor, e ScanEntry, room room) (ScanEntry, entryKind, error) {
	rec, damage, err := c.base.Whole()
	switch {
	case err != nil:
		return e, 0, err
	case damage != nil:
		return e, 0, damage
	case m.reads.expired(c.shard, rec.Expiry):
		return m.ask(ctx, c, e, room)
	}
	e.Version, e.Expiry, e.ValLen = rec.Version, rec.Expiry, len(rec.Value)
	if room.takes(e.Key, e.ValLen) {
		e.Value = bytes.Clone(rec.Value)
	}
	return e.fitted(room)
}

// notedEntry is of a record of the base that notes its value: the value is not read for its
// times or its length.
func (m *merge) notedEntry(ctx context.Context, c *cursor, e ScanEntry, room room, rec disk.Record, valLen int) (ScanEntry, entryKind, error) {
	switch {
	case m.reads.expired(c.shard, rec.Expiry):
		return m.ask(ctx, c, e, room)
	case room.takes(e.Key, valLen):
		return m.baseEntry(ctx, c, e, room)
	}
	e.Version, e.Expiry, e.ValLen = rec.Version, rec.Expiry, valLen
	return e.fitted(room)
}

// leastRead is what a record of the log costs at least: a block of the file is read for it.
const leastRead = 4096

// newerEntry reads an entry of the view: from the item, if memory has exactly that version,
// else from the log. A record of the log is paid for like a value that is read for its times
// alone: it may wait for the disk, and a batch has the values of others in it.
func (m *merge) newerEntry(ctx context.Context, c *cursor, e ScanEntry, room room) (ScanEntry, entryKind, error) {
	at := c.view.Entry()
	item, found := m.item(c, e.Key, at.Version, room)
	switch {
	case found == itemExpired:
		return e, entryExpired, nil
	case found == itemThere:
		e.Version, e.Expiry, e.ValLen, e.Value = item.Version, item.Expiry, item.ValLen, item.Value
		return e.fitted(room)
	}
	rec, read, err := m.newer.Look(c.shard, e.Key, at)
	if err != nil {
		return e, 0, err
	}
	if m.reads.expired(c.shard, rec.Expiry) {
		m.pay(read, 0)
		return m.ask(ctx, c, e, room)
	}
	e.Version, e.Expiry, e.ValLen = rec.Version, rec.Expiry, rec.Length
	if room.takes(e.Key, e.ValLen) {
		value, more, err := m.newer.Value(&rec)
		if err != nil {
			return e, 0, err
		}
		e.Value, read = append([]byte{}, value...), read+more
	}
	m.pay(read, len(e.Value))
	return e.fitted(room)
}

// pay counts what was read of the log for an entry, without what the page has of it.
func (m *merge) pay(read, value int) {
	if read > 0 {
		m.apart -= max(leastRead, read-value)
	}
}

// What memory says of an entry of a view.
type itemState uint8

const (
	itemUnknown itemState = iota
	itemThere
	itemExpired // and no write is in flight that was judged before
)

// item reads the item of a key, if it is of a version: with its value, if there is room for it.
// Key of the result is not set. The lock is held for a look and a small copy.
func (m *merge) item(c *cursor, key []byte, v layout.Version, room room) (e ScanEntry, s itemState) {
	r, sh := m.reads, m.reads.env.Shards[c.shard]
	h := layout.HashKey(r.env.Memory.Seed, key)
	sh.Mu.Lock()
	it, ok := sh.Resident(h, key)
	switch {
	case !ok || it.Version != v:
		sh.Mu.Unlock()
		return e, itemUnknown
	case r.expired(c.shard, it.Expiry):
		if sh.Inflight(h, key) == nil {
			s = itemExpired
		}
		sh.Mu.Unlock()
		return e, s
	}
	e = ScanEntry{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}
	if !room.takes(key, it.ValLen) {
		sh.Mu.Unlock()
		return e, itemThere
	}
	if e.Value, ok = r.copyItem(sh, &it, []byte{}); !ok {
		return ScanEntry{}, itemUnknown // the log has it right
	}
	return e, itemThere
}

// inMemory says what the snapshot has under a key if memory knows that: its item is from
// before the moment, so no write of the key was published between it and the moment. That it
// has expired is only said when no write is in flight that may have been judged before. A key
// that is newer than the base is not asked for here.
func (m *merge) inMemory(c *cursor, key []byte) (info Info, expired, ok bool) {
	r, sh := m.reads, m.reads.env.Shards[c.shard]
	h := layout.HashKey(r.env.Memory.Seed, key)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	it, ok := sh.Resident(h, key)
	if !ok || it.Version > m.known[c.shard] {
		return Info{}, false, false
	}
	expired = r.expired(c.shard, it.Expiry)
	if expired && sh.Inflight(h, key) != nil {
		return Info{}, false, false
	}
	return Info{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}, expired, true
}

// ask answers for one key as Get and Stat do: of a key that has expired only
// they know whether a write that was judged before makes it live on. That is of a
// later moment than the page.
func (m *merge) ask(ctx context.Context, c *cursor, e ScanEntry, room room) (ScanEntry, entryKind, error) {
	info, err := m.reads.Stat(ctx, c.shard, e.Key)
	if err == nil && room.takes(e.Key, info.ValLen) {
		var v Value
		v, err = m.reads.Get(ctx, c.shard, e.Key, nil)
		info, e.Value = Info{Version: v.Version, ValLen: len(v.Data), Expiry: v.Expiry}, v.Data
	}
	switch {
	case errors.Is(err, base.ErrNotFound):
		return e, entryExpired, nil
	case err != nil:
		return e, 0, err
	}
	e.Version, e.Expiry, e.ValLen = info.Version, info.Expiry, info.ValLen
	e, kind, err := e.fitted(room)
	if kind == entryFits {
		kind = entryLast
	}
	return e, kind, err
}

// fitted is the end of entry: a value that is too large for the page is left
// out if the entry is its first.
func (e ScanEntry) fitted(room room) (ScanEntry, entryKind, error) {
	if room.keysOnly {
		return e, entryFits, nil
	}
	if layout.IsHead(e.Value) {
		// The value is in parts, and larger than any page: the caller gets it by its key.
		e.ValLen, e.Value = int(layout.WholeLen(e.Value)), nil
		if room.left = 0; !room.first {
			return e, entryTooLarge, nil
		}
	}
	switch {
	case len(e.Key)+e.ValLen <= room.left:
		if e.Value == nil {
			e.Value = []byte{}
		}
	case room.first:
		e.Value, e.Omitted = nil, true
		return e, entryLast, nil
	default:
		return e, entryTooLarge, nil
	}
	return e, entryFits, nil
}
