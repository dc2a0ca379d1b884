package image

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// Ranges is a Sink that can also delete what a base has between two keys; *tables.Tables is one.
type Ranges interface {
	Sink
	// DeleteRange deletes from start on what the base has up to end, which is left.
	DeleteRange(start, end []byte) error
	// Cut ends a table of the sink.
	Cut()
}

// tableBytes is where a table of a Replacement ends.
const tableBytes = 32 << 20

// A Replacement is a Sink whose records take the place of everything that a base has of some shards. Tables of one ingest may
// not overlap, so each deletes what stands between its own keys, and up to the first of the next:
//
//	  table 1           table 2                table 3
//	|a...c...f        |k......m            |q...         (keys of the image)
//	[-------- deleted ][-- deleted --------][-- deleted, up to the end of the shard
type Replacement struct {
	to     Ranges
	shards []uint16 // that are left, rising
	start  []byte   // up to where everything is deleted; nil: the first shard has not begun
	size   int      // of the open table
	most   int      // tableBytes
}

// NewReplacement returns a sink for what is to take the place of these shards.
func NewReplacement(to Ranges, shards []uint16) *Replacement {
	return &Replacement{to: to, shards: slices.Sorted(slices.Values(shards)), most: tableBytes}
}

// Set implements Sink. Keys are those of the shards, and rise.
func (r *Replacement) Set(key, value []byte) error {
	id := binary.BigEndian.Uint16(key)
	for r.shards[0] != id {
		if err := r.endShard(); err != nil {
			return err
		}
	}
	if r.start == nil {
		r.start = disk.AppendKey(nil, id, 0, nil)
	}
	if r.size >= r.most {
		if err := r.to.DeleteRange(r.start, key); err != nil {
			return err
		}
		r.to.Cut()
		r.start, r.size = bytes.Clone(key), 0
	}
	r.size += len(key) + len(value)
	return r.to.Set(key, value)
}

// endShard deletes what is left of the first shard.
func (r *Replacement) endShard() error {
	id := r.shards[0]
	if r.start == nil {
		r.start = disk.AppendKey(nil, id, 0, nil)
	}
	err := r.to.DeleteRange(r.start, disk.AppendKey(nil, id+1, 0, nil))
	r.shards, r.start = r.shards[1:], nil
	return err
}

// End is called behind the last record.
func (r *Replacement) End() error {
	for len(r.shards) > 0 {
		if err := r.endShard(); err != nil {
			return err
		}
	}
	return nil
}
