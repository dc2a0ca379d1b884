package reads

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// ScanRequest asks for a page of keys, in order, over all shards.
type ScanRequest struct {
	Prefix   []byte // only keys that start with this; empty: all
	After    []byte // only keys behind this one; empty: from the first
	From     bool   // After itself is wanted too
	End      []byte // only keys before this one; empty: to the last
	Limit    int    // entries; 0 means 1000, at most 10,000
	MaxBytes int    // keys and values of the page; 0 means 1 MiB, at most 64 MiB
	KeysOnly bool   // leave values out
	// Pause, if there is one, is called after every 64 keys, on the goroutine of the
	// call, which holds no lock meanwhile: a page may take milliseconds.
	Pause func()
}

// ScanPage is a piece of the answer: the state of all its keys at one moment of
// the call. Pages of one scan are not a snapshot together, but each is of a later
// moment than the one before it. The last entry of a page may be of a later moment
// than the others, or Omitted, to be asked for by a later Get: nothing of the page's
// moment stands behind it, so a caller that goes through a scan in order never meets an older
// part of a batch behind a newer one.
type ScanPage struct {
	Entries []ScanEntry
	More    bool   // there may be keys behind the last
	Next    []byte // with More: the After of the next page
}

// ScanEntry is one key.
type ScanEntry struct {
	Key []byte
	// Version is 0 if only the key was read, of a value of 1 KiB and up, which
	// lies apart from the key: with KeysOnly in a store where nothing ever expired,
	// and with Omitted where memory does not know the key. Of the latter Expiry is
	// not known, and ValLen is 8 too large if it has one.
	Version layout.Version
	ValLen  int    // bytes
	Expiry  uint64 // server time in microseconds since 1970; 0: never
	Value   []byte
	// Omitted says that there is a value and it was left out because it
	// alone is larger than MaxBytes. Get it by its key; it may have expired, or
	// been deleted since. It is the last of its page.
	Omitted bool
}

const (
	// A page has scanLimit entries and scanBytes bytes, or what is asked for up to
	// MaxScanLimit and MaxScanBytes.
	scanLimit    = 1000
	MaxScanLimit = 10_000
	scanBytes    = 1 << 20
	MaxScanBytes = 64 << 20
	// MaxScanApart bounds the values that a page reads for the times in front of
	// them alone. One more than that may be read.
	MaxScanApart = 4 << 20
	// ScanPause is after how many keys Pause is called; they take about 0.1 ms.
	ScanPause = 64
)

// Scan returns one page. It reads Pebble, then waits until all that it may
// have seen is published. Errors as Get.
func (r *Reads) Scan(ctx context.Context, req ScanRequest) (ScanPage, error) {
	if err := ctx.Err(); err != nil {
		return ScanPage{}, err
	}
	leave, err := r.env.Door.Enter()
	if err != nil {
		return ScanPage{}, err
	}
	defer leave()
	if !r.env.Disk.Durable() {
		return ScanPage{}, base.ErrUnsupported // memory alone has no order of keys
	}
	if max(len(req.Prefix), len(req.After), len(req.End)) > layout.MaxKeyLen {
		return ScanPage{}, base.ErrKeyTooLarge
	}
	req.Limit = min(cmp.Or(max(req.Limit, 0), scanLimit), MaxScanLimit)
	req.MaxBytes = min(cmp.Or(max(req.MaxBytes, 0), scanBytes), MaxScanBytes)

	r.counts.Scans.Add(1)
	m, err := r.openMerge(req)
	if err != nil {
		return ScanPage{}, err
	}
	defer m.close()
	// The snapshot is taken. All it can show was ordered before this moment.
	marks := make([]layout.Version, len(r.env.Shards))
	for i, sh := range r.env.Shards {
		marks[i] = sh.Marks().Ordered
	}
	page, err := m.page(ctx, req)
	if err != nil {
		return ScanPage{}, r.env.Disk.Fault(disk.StoreShard, req.Prefix, err)
	}
	for i, sh := range r.env.Shards {
		if err := sh.WaitPublished(ctx, marks[i]); err != nil {
			return ScanPage{}, err
		}
	}
	return page, nil
}

// A merge walks the data keys of all shards in order: a heap of one iterator
// per shard over one snapshot. Not safe for concurrent use.
type merge struct {
	reads   *Reads
	expires bool // some of the keys may
	look    int  // keys that a page looks at, at most
	apart   int  // bytes of values that it may still read for no more than their times
	// known has for each shard the newest write that was published before the
	// snapshot was taken, so that the snapshot has it, too.
	known   []layout.Version
	snap    disk.Snapshot
	cursors cursors
	all     []disk.Records
}

// A cursor is one shard's iterator at a valid position.
type cursor struct {
	iter  disk.Records
	shard uint16
	key   []byte // the user's key; good until the iterator moves
}

// cursors is a heap by key. Equal keys in two shards cannot be; were they,
// the shard decides, so that the order is the same every time.
type cursors []cursor

func (c cursors) Len() int { return len(c) }
func (c cursors) Less(i, j int) bool {
	if d := bytes.Compare(c[i].key, c[j].key); d != 0 {
		return d < 0
	}
	return c[i].shard < c[j].shard
}
func (c cursors) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)   { *c = append(*c, x.(cursor)) }
func (c *cursors) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// openMerge positions an iterator at the first key of each shard.
func (r *Reads) openMerge(req ScanRequest) (*merge, error) {
	m := &merge{reads: r, look: maxScanLook, apart: MaxScanApart, known: make([]layout.Version, len(r.env.Shards))}
	for i, sh := range r.env.Shards {
		m.known[i] = sh.Marks().Published
	}
	m.snap = r.env.Disk.Snapshot()
	// What is in the snapshot and expires was ordered behind the clock's bound.
	m.expires = r.clock.Bounded()
	for _, sh := range r.env.Shards {
		lower, upper := disk.PrefixBounds(sh.ID, req.Prefix)
		if len(req.After) > 0 {
			after := disk.AppendKey(nil, sh.ID, disk.KindData, req.After)
			if !req.From {
				after = append(after, 0) // the first key behind it
			}
			if bytes.Compare(after, lower) > 0 {
				lower = after
			}
		}
		if len(req.End) > 0 {
			if end := disk.AppendKey(nil, sh.ID, disk.KindData, req.End); bytes.Compare(end, upper) < 0 {
				upper = end
			}
		}
		if bytes.Compare(lower, upper) >= 0 {
			continue
		}
		iter, err := m.snap.Records(lower, upper)
		if err != nil {
			m.close()
			return nil, r.env.Disk.Fault(sh.ID, req.Prefix, err)
		}
		m.all = append(m.all, iter)
		iter.First()
		if err := m.add(cursor{iter: iter, shard: sh.ID}); err != nil {
			m.close()
			return nil, r.env.Disk.Fault(sh.ID, req.Prefix, err)
		}
	}
	heap.Init(&m.cursors)
	return m, nil
}

// add puts a cursor among the others if it stands at a key. An iterator that
// meets a damaged block says "no more" and keeps the reason to itself until
// it is asked: so it is asked, every time.
func (m *merge) add(c cursor) error {
	if !c.iter.Valid() {
		return c.iter.Error()
	}
	var ok bool
	if _, _, c.key, ok = disk.ParseKey(c.iter.Key()); !ok {
		return &base.CorruptError{Shard: c.shard, Detail: fmt.Sprintf("impossible key %x", c.iter.Key())}
	}
	m.cursors = append(m.cursors, c)
	return nil
}

// next moves the first cursor on.
func (m *merge) next() error {
	c := &m.cursors[0]
	if c.iter.Next() {
		_, _, c.key, _ = disk.ParseKey(c.iter.Key())
		heap.Fix(&m.cursors, 0)
		return nil
	}
	err := c.iter.Error()
	heap.Pop(&m.cursors)
	return err
}

// maxScanLook bounds the keys that one page looks at, of which many may have
// expired; a page may be empty and have more behind it.
const maxScanLook = 4 * MaxScanLimit

// page reads entries until a bound is reached.
func (m *merge) page(ctx context.Context, req ScanRequest) (ScanPage, error) {
	var p ScanPage
	left := req.MaxBytes
	var last []byte // the last key looked at
	for n := 0; len(m.cursors) > 0; n++ {
		if n%ScanPause == ScanPause-1 {
			if req.Pause != nil {
				req.Pause()
			}
			if err := ctx.Err(); err != nil {
				return ScanPage{}, err
			}
		}
		if len(p.Entries) == req.Limit || n == m.look || m.apart < 0 {
			p.More = true
			break
		}
		e, kind, err := m.entry(ctx, m.cursors[0], req.KeysOnly, left, len(p.Entries) == 0)
		if err != nil {
			return ScanPage{}, err
		}
		if kind == entryTooLarge {
			p.More = true
			break
		}
		if last = e.Key; kind != entryExpired {
			left -= len(e.Key) + len(e.Value)
			p.Entries = append(p.Entries, e)
		}
		if err := m.next(); err != nil {
			return ScanPage{}, err
		}
		if kind == entryLast {
			p.More = len(m.cursors) > 0
			break
		}
	}
	if p.More {
		p.Next = last
	}
	return p, nil
}

// What entry says of an entry.
type entryKind uint8

const (
	entryFits     entryKind = iota
	entryLast               // it fits, and is, or will be got, of a later moment than the page
	entryTooLarge           // for what is left of the page, and it is not the first
	entryExpired            // it is not there any more
)

// entry reads the entry at a cursor. Its key is always set.
func (m *merge) entry(ctx context.Context, c cursor, keysOnly bool, left int, first bool) (e ScanEntry, kind entryKind, err error) {
	e.Key = bytes.Clone(c.key)
	size, apart := c.iter.Size()
	e.ValLen = max(0, size-disk.RecordHeader)
	large := len(e.Key)+max(e.ValLen-8, 0) > left && !keysOnly // 8: it may have an expiry
	switch {
	case keysOnly && !first && len(e.Key) > left, large && !first:
		return e, entryTooLarge, nil
	case keysOnly && apart && !m.expires:
		return e, entryFits, nil // leave it there
	case (keysOnly || large) && apart:
		// Not to be read for its times, either, where memory knows them.
		if info, expired, ok := m.inMemory(c, e.Key); ok {
			if expired {
				return e, entryExpired, nil
			}
			e.Version, e.Expiry, e.ValLen = info.Version, info.Expiry, info.ValLen
			return e.fitted(keysOnly, left, first)
		}
		if large {
			e.Omitted = true
			return e, entryLast, nil
		}
		m.apart -= size
	}
	b, err := c.iter.Value()
	if err != nil {
		return e, 0, err
	}
	rec, err := disk.ParseRecord(b, c.iter.Key())
	if err != nil {
		return e, 0, &base.CorruptError{Shard: c.shard, Key: e.Key, Detail: err.Error()}
	}
	if m.reads.clock.Expired(rec.Expiry) {
		return m.ask(ctx, c, e, keysOnly, left, first)
	}
	e.Version, e.Expiry, e.ValLen = rec.Version, rec.Expiry, len(rec.Value)
	if !keysOnly && len(e.Key)+e.ValLen <= left {
		e.Value = bytes.Clone(rec.Value)
	}
	return e.fitted(keysOnly, left, first)
}

// inMemory says what the snapshot has under a key if memory knows that: its item is
// from before the snapshot, and no write of it is in flight, which the snapshot may
// have and memory not yet.
func (m *merge) inMemory(c cursor, key []byte) (info Info, expired, ok bool) {
	r, sh := m.reads, m.reads.env.Shards[c.shard]
	h := layout.HashKey(r.env.Memory.Seed, key)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	it, ok := sh.Resident(h, key)
	if !ok || it.Version > m.known[c.shard] || sh.Inflight(h, key) != nil {
		return Info{}, false, false
	}
	return Info{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}, r.clock.Expired(it.Expiry), true
}

// ask answers for one key as Get and Stat do: of a key that has expired only
// they know whether a write that was judged before makes it live on. That is of a
// later moment than the page.
func (m *merge) ask(ctx context.Context, c cursor, e ScanEntry, keysOnly bool, left int, first bool) (ScanEntry, entryKind, error) {
	info, err := m.reads.Stat(ctx, c.shard, e.Key)
	if err == nil && !keysOnly && len(e.Key)+info.ValLen <= left {
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
	e, kind, err := e.fitted(keysOnly, left, first)
	if kind == entryFits {
		kind = entryLast
	}
	return e, kind, err
}

// fitted is the end of entry: a value that is too large for the page is left
// out if the entry is its first.
func (e ScanEntry) fitted(keysOnly bool, left int, first bool) (ScanEntry, entryKind, error) {
	if keysOnly {
		return e, entryFits, nil
	}
	switch {
	case len(e.Key)+e.ValLen <= left:
		if e.Value == nil {
			e.Value = []byte{}
		}
	case first:
		e.Value, e.Omitted = nil, true
		return e, entryLast, nil
	default:
		return e, entryTooLarge, nil
	}
	return e, entryFits, nil
}

// close releases iterators and snapshot. Errors were looked at before.
func (m *merge) close() {
	var err error
	for _, iter := range m.all {
		err = errors.Join(err, iter.Close())
	}
	_ = errors.Join(err, m.snap.Close())
}

// A PageForTests is a page of a scan whose snapshot is taken and of which nothing has been
// read yet. Tests let writes come in between.
type PageForTests struct{ m *merge }

// OpenForTests begins a page that looks at so many keys at most; 0: at as many as any.
func OpenForTests(r *Reads, req ScanRequest, look int) (PageForTests, error) {
	m, err := r.openMerge(req)
	if err == nil && look > 0 {
		m.look = look
	}
	return PageForTests{m}, err
}

// Read reads the page, or goes on behind the one before it.
func (p PageForTests) Read(ctx context.Context, req ScanRequest) (ScanPage, error) {
	return p.m.page(ctx, req)
}

// Close releases the snapshot.
func (p PageForTests) Close() { p.m.close() }
