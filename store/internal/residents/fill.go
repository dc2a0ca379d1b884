package residents

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// After a start memory is empty; the log has what is newer than the base, and the base
// the rest. The store serves at once: every bucket header says 255 keys without
// slot, so that every miss is asked by SEND, and the fill brings the keys in behind
// that, those of the log first (filllog.go). It runs beside puts, deletes and
// checkpoints, and a value it read earlier must never win over a newer one
// (fill-loses-to-newer-writes). A key read from a chunk's snapshot is dropped if
//
//	a write of it is in flight        that will link it
//	the set has another version       that one is newer, and was linked already
//	it has a slot                     a put linked it, this or a newer value
//	it was deleted, or put without a  the snapshot is older than that
//	  slot, since the snapshot
//
// and else goes in like a put: pending, slot, live. Each of the four is
// looked at under the shard's lock together with the last three steps. When keys
// leave the set, the rest of the chunk is void: what the snapshot says of them is old,
// and the set does not say so any more.

const (
	chunkKeys  = 4096
	chunkBytes = 4 << 20
)

// FillConfig says how memory is filled.
type FillConfig struct {
	Workers  int           // shards that are filled at a time
	Lease    time.Duration // of readers
	Beat     time.Duration // between two looks at what leases have freed
	Logger   *slog.Logger
	Progress func(Progress) // must not block
	Hold     chan struct{}  // tests: it begins when this is closed; nil: at once
}

// Progress tells how far the fill after a start has come.
type Progress struct {
	Shards       int           // all shards
	ShardsFilled int           // of them, those whose misses can be believed
	Keys         uint64        // keys read so far; one that the log and the base have counts twice
	Bytes        uint64        // bytes of their values
	Expected     uint64        // keys at the last clean stop; 0 if unknown
	Elapsed      time.Duration // since Open
	Done         bool          // all are filled: the last call, until a shard was emptied (another replica's state) and is full again
	Err          error         // the first shard that could not be filled; it stays "ask"
}

// A Fill brings the keys of the disk into memory, once after a start, and those of a shard that was emptied
// again. Safe for concurrent use, but for Start.
type Fill struct {
	Env
	cfg FillConfig

	done    atomic.Bool   // every shard is filled
	next    atomic.Int32  // the next shard for a worker
	shards  atomic.Int32  // shards whose misses are believed
	keys    atomic.Uint64 // read
	bytes   atomic.Uint64 // of their values
	dropped atomic.Uint64 // keys that lost against a newer write

	started  time.Time
	expected uint64

	telling  sync.Mutex // held while Progress is called
	reported time.Time  // under telling

	mu   sync.Mutex // behind telling
	err  error      // under mu: the first fault
	each []filling  // under mu: by shard
}

// A filling is how far a shard is.
type filling struct {
	begun bool
	busy  bool // a worker is at it, and looks at its end whether it is to do it again
	full  bool // its misses are believed
}

// NewFill returns a fill that has not begun, of a store that was opened at started.
func NewFill(env Env, c FillConfig, started time.Time) *Fill {
	return &Fill{Env: env, cfg: c, started: started, each: make([]filling, len(env.Shards))}
}

// Start begins the fill.
func (f *Fill) Start() {
	for range min(f.cfg.Workers, len(f.Shards)) {
		f.Life.Go(f.run)
	}
}

// Done reports whether every shard is filled: misses are believed.
func (f *Fill) Done() bool { return f.done.Load() }

// Filled returns how many shards are filled, how many keys were read, and how many of
// these lost against a newer write, and the first fault.
func (f *Fill) Filled() (shards int, keys, dropped uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.shards.Load()), f.keys.Load(), f.dropped.Load(), f.err
}

var (
	// errStopped ends a fill when the store closes.
	errStopped = errors.New("store: stopped")
	// errNoRoomYet ends a chunk at a key whose segment grows a lease from now.
	errNoRoomYet = errors.New("store: retired index memory rests")
)

// fillPatience is for how many leases the fill waits with one key for room in
// the index. The first lease frees what was retired when the wait began.
const fillPatience = 3

// fillVoids is how often a key of the base is read again because its chunk was void when its
// turn came: a checkpoint made keys leave the shard's set, or too many were deleted. Then it
// is counted as a key without a slot, which is always true enough: it is asked for.
const fillVoids = 8

// progressEvery is the least time between two calls of Config.Progress.
const progressEvery = 250 * time.Millisecond

// run is one worker: it fills shard after shard.
func (f *Fill) run() {
	if f.cfg.Hold != nil {
		<-f.cfg.Hold
	}
	batch := &fillBatch{f: f, keys: make([]fillKey, 0, batchKeys)}
	defer batch.places.release(f.Memory.Slabs)
	for {
		i := int(f.next.Add(1)) - 1
		if i >= len(f.Shards) {
			return
		}
		batch.sh = f.Shards[i]
		f.begin(batch.sh)
		if !f.all(batch) {
			return
		}
	}
}

// all fills the shard of the batch, as often as it is emptied meanwhile. A shard that cannot be read is left as it
// is. false: the store ends.
func (f *Fill) all(batch *fillBatch) bool {
	for again := true; again; {
		content := batch.sh.Content()
		err := f.shard(batch, content)
		if errors.Is(err, errStopped) {
			return false
		}
		if again = !f.ended(batch.sh, content); err != nil && !again {
			f.failed(batch.sh, err)
		}
	}
	return true
}

// shard fills the shard of the batch, which has a content, and arranges for its misses to be
// believed.
func (f *Fill) shard(batch *fillBatch, content uint64) error {
	if err := f.logged(batch); err != nil {
		return err
	}
	if err := f.based(batch, content); err != nil {
		return err
	}
	sh := batch.sh
	m := sh.Marks()
	if m.Published == m.Ordered {
		f.full(sh, content)
		return nil
	}
	f.Life.Go(func() { f.after(sh, m.Ordered, content) })
	return nil
}

// based fills from the base. It ends: a chunk goes on where the one before it ended, and one
// that ends at its first key does that for want of room, which is over with fillPatience, or
// because it is void, and a key is void fillVoids times at most. When the shard was emptied, it ends at once: what
// it would bring in would come again.
func (f *Fill) based(batch *fillBatch, content uint64) error {
	lower, upper := disk.KindBounds(batch.sh.ID, disk.KindData)
	var since time.Time // when the key at lower first found no room; zero: it did not
	voids := 0          // how often it was void
	for more := true; more && batch.sh.Content() == content; {
		hurry := !since.IsZero() && time.Since(since) > fillPatience*f.cfg.Lease
		next, rest, err := f.chunk(batch, lower, upper, hurry, voids == fillVoids)
		if !bytes.Equal(next, lower) {
			voids = 0
		} else if err == nil {
			voids = min(voids+1, fillVoids)
		}
		switch {
		case errors.Is(err, errNoRoomYet):
			if since.IsZero() || !bytes.Equal(next, lower) {
				since = time.Now()
			}
			if err := f.pause(); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			since = time.Time{}
		}
		lower, more = next, rest
		f.progress(false)
	}
	return nil
}

// pause waits for a beat. A fill is faster than any writer: the segments
// that it outgrows rest for a lease, and the index bounds what may rest. A key
// that goes without a slot for that would be answered by SEND from then on, so
// the fill, which is in no hurry, rather waits.
func (f *Fill) pause() error {
	beat := time.NewTimer(f.cfg.Beat)
	defer beat.Stop()
	select {
	case <-beat.C:
		return nil
	case <-f.Life.Stop:
	case <-f.Memory.Fence.Down:
	}
	return errStopped
}

// chunk fills from lower on, out of one snapshot. It returns where the
// next chunk begins, with errNoRoomYet if it is not yet time for that one.
func (f *Fill) chunk(batch *fillBatch, lower, upper []byte, hurry, tired bool) (next []byte, more bool, err error) {
	sh := batch.sh
	// The order matters: writes that the snapshot does not have are noted.
	sh.BeginChunk(hurry, tired)
	defer sh.EndChunk()
	iter, err := f.Disk.Records(lower, upper)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil { // else it says the same
			err = closeErr
		}
	}()
	keys, size := 0, 0
	for iter.First(); iter.Valid(); iter.Next() {
		if keys == chunkKeys || size >= chunkBytes {
			next = append([]byte(nil), iter.Key()...)
			break
		}
		rec, damage, err := iter.Whole()
		if err != nil {
			// What was read before it is as good as ever.
			_, _, _ = batch.end()
			return nil, false, err
		}
		_, _, key, _ := disk.ParseKey(iter.Key())
		if damage != nil {
			f.Memory.Counts.Corrupt.Add(1)
			batch.damaged(key, damage)
		} else {
			batch.add(key, rec)
		}
		keys, size = keys+1, size+len(rec.Value)
		if batch.full() {
			if f.Life.Over() {
				batch.drop()
				return nil, false, errStopped
			}
			if next, more, err := batch.end(); more {
				return next, true, err
			}
		}
	}
	if first, early, err := batch.end(); early {
		return first, true, err
	}
	// A damaged block looks like the end; only this tells.
	return next, next != nil, iter.Error()
}

// A start that knows how many keys will come makes the index large enough for
// them at once: a fill is faster than leases end, and an index that grows under
// it has to wait for those of what it outgrew. A clean stop leaves the counts
// behind; for the start after a crash the keeper notes them now and then. They
// are a guess: too low, and the index grows as ever; too high, and it is larger
// than it need be.

const (
	// indexBytesPerKey is roughly what a key costs in the index.
	indexBytesPerKey = 12
)

// Keys returns how many keys have a slot, per shard. A shard that is not filled has at
// least what was counted before this start.
func (f *Fill) Keys() []uint64 {
	keys := make([]uint64, len(f.Shards))
	for i, sh := range f.Shards {
		sh.Mu.Lock()
		keys[i] = uint64(sh.Index.Keys())
		if before := f.Disk.Keys(); !sh.Index.Filled() && before != nil {
			keys[i] = max(keys[i], before[i])
		}
		sh.Mu.Unlock()
	}
	return keys
}

// Presize makes room in all indexes for the keys of the last life, several
// shards at a time. The limit may be lower this time: they take an eighth of it
// at most. It is called before Start.
func (f *Fill) Presize(limit uint64) {
	keys := f.Disk.Keys()
	if keys == nil {
		return
	}
	most := limit / 8 / indexBytesPerKey / uint64(len(f.Shards))
	var next atomic.Int32
	var wg sync.WaitGroup
	for range min(f.cfg.Workers, len(f.Shards)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(f.Shards); i = int(next.Add(1)) - 1 {
				f.Shards[i].Index.Reserve(int(min(keys[i], most)))
			}
		})
	}
	wg.Wait()
	for _, n := range keys {
		f.expected += n
	}
}
