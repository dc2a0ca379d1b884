package upkeep

import (
	"log/slog"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	forgetChunk = 512   // records per ordered removal
	forgetLook  = 32768 // records looked at per tick
)

// LoadResults reads the results of requests of all shards into a table. They all begin
// their time anew: how long the store was closed says nothing about how long the
// clients have been silent, or how old their retries are.
func LoadResults(d *disk.Disk, shards int, results *dedup.Table) error {
	for i := range shards {
		if err := LoadResultsOf(d, uint16(i), results); err != nil {
			return err
		}
	}
	return nil
}

// LoadResultsOf reads those of one shard.
func LoadResultsOf(d *disk.Disk, shard uint16, results *dedup.Table) error {
	return d.EachResult(shard, nil, func(_ []byte, k base.SlotKey, r dedup.Result) bool {
		results.Load(shard, k, r)
		return true
	})
}

// A Forgetter lets the table of results age, and removes records from the disk whose
// entries are gone or were replaced by one in another shard. It is its goroutine's alone.
//
// What it has removed is in the base until a checkpoint has taken the removal, and would be
// found and removed again until then. So it comes back to a shard when the shard's clean
// mark has passed the last removal there. Without that each pass would order the same removals:
// forgetLook records a tick, which is 64 records of the log and 0.6 MB, for nothing.
type Forgetter struct {
	Env
	results *dedup.Table
	log     *slog.Logger

	removed []removal // by shard: the last one that stands in the log

	// How far it has come.
	shard int
	key   []byte // the next key of the base; nil: the shard's first
}

// NewForgetter returns a forgetter; see Forgetter.
func NewForgetter(env Env, results *dedup.Table, log *slog.Logger) *Forgetter {
	return &Forgetter{Env: env, results: results, log: log, removed: make([]removal, len(env.Shards))}
}

// A removal is one of records of a shard: the version of its write, and the content of the shard that had them. When another content has taken its place,
// versions of the one before say nothing.
type removal struct {
	version layout.Version
	content uint64
}

// Run forgets until the store ends.
func (x *Forgetter) Run() {
	x.Life.Every(dedup.TickEvery, func() {
		x.results.Tick()
		if !x.Disk.Durable() || !x.results.Used() {
			return
		}
		if err := x.Some(); err != nil && !x.Life.Over() && !isOthers(err) {
			x.log.Warn("removal of old request records", "err", err)
		}
	})
}

// Some looks at some records, and has those removed that are obsolete.
func (x *Forgetter) Some() error {
	if err := x.Disk.NoteShort(x.results.Short); err != nil {
		return err
	}
	return x.some(x.Disk.EachResult)
}

// eachResult is disk.Disk.EachResult.
type eachResult func(shard uint16, from []byte, f func(pkey []byte, k base.SlotKey, r dedup.Result) bool) error

// some is Some with the records that each tells.
func (x *Forgetter) some(each eachResult) error {
	for looked := 0; looked < forgetLook; {
		id := x.Shards[x.shard].ID
		if x.key == nil && (x.waits() || !x.mine(id)) {
			if x.next() {
				return nil
			}
			continue
		}
		var obsolete []base.SlotKey
		n, from := 0, x.key
		x.key = nil
		err := each(id, from, func(pkey []byte, k base.SlotKey, r dedup.Result) bool {
			if n++; n > forgetLook || len(obsolete) == forgetChunk {
				x.key = append([]byte(nil), pkey...)
				return false
			}
			if !x.results.Current(id, k) {
				obsolete = append(obsolete, k)
			}
			return true
		})
		if err != nil {
			return err
		}
		if len(obsolete) > 0 {
			if err := x.remove(id, obsolete); err != nil {
				return err
			}
		}
		looked += n
		if x.key == nil && x.next() {
			return nil
		}
	}
	return nil
}

// next goes on to the next shard. It says whether it was the last.
func (x *Forgetter) next() (last bool) {
	x.shard = (x.shard + 1) % len(x.Shards)
	return x.shard == 0
}

// waits says whether the base may have records of the shard that were removed already.
func (x *Forgetter) waits() bool {
	sh := x.Shards[x.shard]
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	last := x.removed[x.shard]
	return last.content == sh.Content() && sh.Dirty.Clean() < last.version
}

// remove orders the removal of records, and waits for it.
func (x *Forgetter) remove(shard uint16, keys []base.SlotKey) error {
	f := newWrite(base.Op{Shard: shard, Kind: base.OpForget})
	f.Forget = keys
	content := x.Shards[shard].Content()
	err := x.run([]*flight.Flight{f})
	if err == nil && f.At != 0 {
		x.removed[shard] = removal{f.Version, content}
	}
	return err
}
