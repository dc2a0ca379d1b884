package store

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/reads"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Reads is what a store answers by SEND: Get and Stat, Hold and HoldAside with ReadHeld,
// Scan. A Store has its methods; they need memory, shards and disk, and nothing of what
// orders writes. Safe for concurrent use.
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

// Filled reports whether every shard is filled: misses are believed.
func (s *Store) Filled() bool { return s.filler.Done() }

// A shard may be withheld: its index says "ask" for every key that it has not,
// whatever the fill found, because this store is not the one that knows of the
// shard's keys. In a cluster that is so for every shard of another node, so that
// a reader that came to the wrong node never takes a miss for an answer; its
// question by SEND is then told where to go.
//
// Ownership itself is none of the store's business.

// Release ends the withholding of a shard (Config.Withheld): once it is filled
// its misses are believed. A shard that is not withheld stays as it is, and so does one of a replica that is being given up, or was (RemoveGroup), until
// there is another one.
// ErrShard, ErrClosed, ErrFatal.
func (s *Store) Release(shard uint16) error {
	leave, err := s.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if int(shard) >= len(s.shards) {
		return ErrShard
	}
	if s.groups.left[shard].Load() == nil {
		s.shards[shard].Release()
	}
	return nil
}

// Withheld reports whether a shard is withheld. ErrShard.
func (s *Store) Withheld(shard uint16) (bool, error) {
	if int(shard) >= len(s.shards) {
		return false, ErrShard
	}
	return s.shards[shard].Withheld(), nil
}
