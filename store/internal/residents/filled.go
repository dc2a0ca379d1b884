package residents

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How the fill of a shard ends: its misses are believed, or it is told why not.

// after declares a shard filled once published has reached what was
// ordered when its last chunk was read. A key of which a write was in flight was
// dropped (LinkFilled). Until that write is published the index has neither it nor what
// it replaces, and a miss would say that a key is not there which was there all the time.
func (f *Fill) after(sh *shard.Shard, ordered layout.Version, content uint64) {
	if sh.WaitPublished(f.Life.Ctx, ordered) == nil {
		f.full(sh, content)
	}
}

// Full says that every key of a shard has a slot or is counted. The headers
// show their true counts only a lease later, unless nothing was ever linked:
// the words of one READ come in any order, and a reader may have fetched a
// slot before its key was filled in, and fetch the header after. Until no such
// READ counts any more, the header must say 255.
//
// A shard that is withheld goes on saying 255; it counts as filled, because
// nothing more is to come.
func (f *Fill) Full(sh *shard.Shard) { f.full(sh, sh.Content()) }

// full is Full of a content. One that has given way to another counts no more.
func (f *Fill) full(sh *shard.Shard, content uint64) {
	switch shown, ok := sh.SetFull(content); {
	case !ok:
	case shown:
		f.believed(sh, content)
	default:
		sh.ShowLater(func() { f.believed(sh, content) })
	}
}

// believed counts a shard whose misses are believed by readers.
func (f *Fill) believed(sh *shard.Shard, content uint64) {
	f.mu.Lock()
	e := &f.each[sh.ID]
	if sh.Content() != content || e.full {
		f.mu.Unlock()
		return
	}
	e.full = true
	last := int(f.shards.Add(1)) == len(f.Shards)
	if last {
		f.done.Store(true)
	}
	f.mu.Unlock()
	if last {
		f.progress(true)
	}
}

// begin says that a worker has come to a shard.
func (f *Fill) begin(sh *shard.Shard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each[sh.ID].begun, f.each[sh.ID].busy = true, true
}

// ended says that a worker is through with the content of a shard. false: the shard was emptied meanwhile, and the worker
// fills it again.
func (f *Fill) ended(sh *shard.Shard, content uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	over := sh.Content() == content
	f.each[sh.ID].busy = !over
	return over
}

// Again fills a shard that was emptied. It does not wait.
func (f *Fill) Again(sh *shard.Shard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &f.each[sh.ID]
	if e.full {
		e.full = false
		f.shards.Add(-1)
		f.done.Store(false)
	}
	if !e.begun || e.busy {
		return // a worker comes to it, or is at it
	}
	e.busy = true
	f.Life.Go(func() {
		batch := &fillBatch{f: f, sh: sh, keys: make([]fillKey, 0, batchKeys)}
		defer batch.places.release(f.Memory.Slabs)
		f.all(batch)
	})
}

// failed takes note of a shard that could not be read to its end. It stays
// as it is: its headers say "ask", and the disk says what can be read and what
// cannot, key by key.
func (f *Fill) failed(sh *shard.Shard, err error) {
	err = fmt.Errorf("fill of shard %d stopped, its misses stay unanswered by memory: %w", sh.ID, disk.Damage(err))
	f.cfg.Logger.Error("fill", "err", err)
	f.Memory.Counts.Corrupt.Add(1)
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	f.progress(true)
}

// progress reports, unless it did a moment ago; always if must.
func (f *Fill) progress(must bool) {
	f.telling.Lock()
	defer f.telling.Unlock() // reports do not overtake each other
	now := time.Now()
	if !must && now.Sub(f.reported) < progressEvery {
		return
	}
	f.reported = now
	f.mu.Lock()
	fault := f.err
	f.mu.Unlock()
	// Whoever is told may ask for Stats, which take mu.
	f.cfg.Progress(Progress{
		Shards: len(f.Shards), ShardsFilled: int(f.shards.Load()),
		Keys: f.keys.Load(), Bytes: f.bytes.Load(), Expected: f.expected,
		Elapsed: now.Sub(f.started), Done: f.done.Load(), Err: fault,
	})
}
