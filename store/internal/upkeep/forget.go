package upkeep

import (
	"log/slog"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
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
		shard := uint16(i)
		if err := d.EachResult(shard, nil, func(_ []byte, k base.SlotKey, r dedup.Result) bool {
			results.Load(shard, k, r)
			return true
		}); err != nil {
			return err
		}
	}
	return nil
}

// A Forgetter lets the table of results age, and removes records from the disk whose
// entries are gone or were replaced by one in another shard. It is its goroutine's alone.
type Forgetter struct {
	Env
	results *dedup.Table
	log     *slog.Logger

	// How far it has come.
	shard int
	key   []byte // the next Pebble key; nil: the shard's first
}

// NewForgetter returns a forgetter; see Forgetter.
func NewForgetter(env Env, results *dedup.Table, log *slog.Logger) *Forgetter {
	return &Forgetter{Env: env, results: results, log: log}
}

// Run forgets until the store ends.
func (x *Forgetter) Run() {
	x.Life.Every(dedup.TickEvery, func() {
		x.results.Tick()
		if !x.Disk.Durable() || !x.results.Used() {
			return
		}
		if err := x.Some(); err != nil && !x.Life.Over() {
			x.log.Warn("removal of old request records", "err", err)
		}
	})
}

// Some looks at some records, and has those removed that are obsolete.
func (x *Forgetter) Some() error {
	if err := x.Disk.NoteShort(x.results.Short()); err != nil {
		return err
	}
	for looked := 0; looked < forgetLook; {
		id := x.Shards[x.shard].ID
		var obsolete []base.SlotKey
		n, from := 0, x.key
		x.key = nil
		err := x.Disk.EachResult(id, from, func(pkey []byte, k base.SlotKey, r dedup.Result) bool {
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
		if x.key == nil {
			if x.shard++; x.shard == len(x.Shards) {
				x.shard = 0
				return nil
			}
		}
	}
	return nil
}

// remove orders the removal of records, and waits for it.
func (x *Forgetter) remove(shard uint16, keys []base.SlotKey) error {
	f := newWrite(base.Op{Shard: shard, Kind: base.OpForget})
	f.Forget = keys
	return x.run([]*flight.Flight{f})
}
