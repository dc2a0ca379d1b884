package store

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/reads"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Reads is what a store answers by SEND: Get and Stat, Hold and HoldAside with ReadHeld,
// Scan. Its methods are those of a Store, which they need a part of: memory, shards and
// disk, and nothing of what orders writes. Safe for concurrent use.
type Reads = reads.Reads

type (
	// A Value is an answer of Get.
	Value = reads.Value
	// Info is an answer of Stat.
	Info = reads.Info
	// Held is an item that stays as it is in registered memory, for a caller whose
	// answer is too large for a reply.
	Held = reads.Held
	// A ScanRequest asks for a page of keys, in order, over all shards; a ScanPage is the
	// answer, a ScanEntry one key of it.
	ScanRequest = reads.ScanRequest
	ScanPage    = reads.ScanPage
	ScanEntry   = reads.ScanEntry
)

// openReads makes what answers. Memory is there, and empty.
func (s *Store) openReads() {
	s.Reads = reads.New(reads.Env{
		Door: s.door, Memory: s.mem, Shards: s.shards, Disk: s.disk,
		Evictor: s.evictor, Ask: s.ask, HoldBytes: s.cfg.HoldBytes,
	})
}

// A Touch says that a key was used: what clients tell of the gets that the
// server does not see.
type Touch = residents.Touch

// WantsTouches reports whether it matters by now what is read one-sidedly: memory
// is more than half full.
func (s *Store) WantsTouches() bool { return s.mem.Slabs.Busy() }

// Touched takes clients' reports of keys that they read one-sidedly. It costs
// little and never fails; what it says can only make memory hold other keys
// than it might.
func (s *Store) Touched(touches []Touch) { s.evictor.Touched(touches) }

// Damaged takes a client's report: the item of key, at place and of version,
// did not verify, and did not change. The server looks for itself, soon, and
// repairs what it finds. It never blocks; reports beyond a bound are dropped,
// for the next pass of the scrubber finds the same. key is copied.
func (s *Store) Damaged(shard uint16, key []byte, place layout.Place, version layout.Version) {
	if base.CheckKey(shard, key, len(s.shards)) != nil {
		return
	}
	s.scrub.Report(shard, key)
}
