package layout

import "sync/atomic"

// A Dir is a client's cache of root words and directory pages, for one
// incarnation of one server. What it holds are hints: a wrong one costs a
// round, never an answer. It is bounded (DirCachePages), needs no lock to be
// read, and is safe for concurrent use. A new incarnation needs a new Dir; a
// newer view of the same incarnation does not.
type Dir struct {
	shards []atomic.Pointer[dirRoot]
	pages  atomic.Int64  // cached, over all shards
	hand   atomic.Uint32 // the shard that is emptied next when the cache is full
}

// DirCachePages is the number of directory pages that a Dir keeps: 16 MiB,
// enough for the directories of 3 thousand million keys.
const DirCachePages = 4096

// A dirRoot is what is known of one shard's directory: immutable but for the
// pages, each of which is published whole by its pointer.
type dirRoot struct {
	word  uint64
	place Place
	depth uint8
	pages []atomic.Pointer[dirPage]
	// kept counts the pages that this root holds in Dir.pages.
	kept atomic.Int64
}

// A dirPage is one page of directory entries, immutable.
type dirPage [DirPageEntries]uint64

// NewDir makes an empty cache for the shards of a view.
func NewDir(v *View) *Dir { return &Dir{shards: make([]atomic.Pointer[dirRoot], v.Shards)} }

// Forget drops what is known of one shard.
func (d *Dir) Forget(shard uint16) {
	if int(shard) < len(d.shards) {
		d.drop(d.shards[shard].Swap(nil))
	}
}

// ForgetAll drops everything.
func (d *Dir) ForgetAll() {
	for i := range d.shards {
		d.drop(d.shards[i].Swap(nil))
	}
}

// Pages is the number of directory pages cached, for statistics.
func (d *Dir) Pages() int { return int(d.pages.Load()) }

func (d *Dir) drop(r *dirRoot) {
	if r != nil {
		d.pages.Add(-r.kept.Swap(0))
	}
}

// root is what is known of a shard, nil if nothing is.
func (d *Dir) root(shard uint16) *dirRoot {
	if int(shard) >= len(d.shards) {
		return nil
	}
	return d.shards[shard].Load()
}

// setRoot notes a root word that was READ, and returns what is known of the
// shard now: with its pages if the word is the one already known.
func (d *Dir) setRoot(shard uint16, word uint64) (*dirRoot, bool) {
	place, depth, ok := ParseRoot(word)
	if !ok || int(shard) >= len(d.shards) {
		return nil, false
	}
	old := d.shards[shard].Load()
	if old != nil && old.word == word {
		return old, true
	}
	r := &dirRoot{word: word, place: place, depth: depth}
	r.pages = make([]atomic.Pointer[dirPage], DirBytes(depth)/PageSize)
	d.drop(d.shards[shard].Swap(r))
	return r, true
}

// setPage keeps a page that was READ (PageSize bytes).
func (d *Dir) setPage(shard uint16, r *dirRoot, i int, b []byte) {
	p := new(dirPage)
	for j := range p {
		p[j] = getWord(b, j*wordSize)
	}
	if r.pages[i].Swap(p) != nil {
		return
	}
	r.kept.Add(1)
	total := d.pages.Add(1)
	if d.shards[shard].Load() != r {
		d.drop(r) // forgotten meanwhile: its pages count no more
		return
	}
	if total > DirCachePages {
		// The cache is full, so one other shard starts again. It does not
		// matter much which one; going round keeps a shard's pages for as long
		// as possible.
		victim := uint16(d.hand.Add(1) % uint32(len(d.shards)))
		if victim != shard {
			d.Forget(victim)
		}
	}
}

// pageOf says which page, and which entry in it, names the segment of a key.
func (r *dirRoot) pageOf(h Hash) (page, entry int) {
	i := int(h.Prefix(r.depth))
	return i / DirPageEntries, i % DirPageEntries
}

// pagePlace is where page i stands.
func (r *dirRoot) pagePlace(i int) Place { return r.place + PlaceOfByte(uint64(i)*PageSize) }
