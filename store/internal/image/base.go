package image

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// What a group begins with that begins with keys (R19), in few bytes: how many keys and results of requests, and a sum over each of them in the order of the base:
//
//	┌kind┬key's length┬version┬expiry┬value's length┬value's sum┬key┐
//	└1   ┴4           ┴8      ┴8     ┴8             ┴8          ┴…  ┘
//
// A value that stands apart is not read: the sum that stands in its key's record counts, and whoever reads the value compares it with that. So one pass over the records of kind data and dedup is enough,
// and it comes to the same wherever the base has moved a value to. It finds a base that lacks keys, has others or older ones; that a record has rotted its own checksum says.

// ErrBase: a base does not have what the group began with.
var ErrBase = errors.New("the base does not have what the group began with")

// A baser is such a sum that is being made.
type baser struct {
	disk.GroupBase
	sum  *xxh3.Hasher
	head []byte // to be used again
}

func newBaser() baser { return baser{sum: xxh3.New()} }

// add adds a record; one of another kind than data and dedup counts for nothing.
func (d *baser) add(key, value []byte) error {
	_, kind, _, ok := disk.ParseKey(key)
	if !ok || kind != disk.KindData && kind != disk.KindDedup {
		return nil
	}
	rec, note, apart, err := disk.ParseNoted(value, key)
	if err != nil {
		return err
	}
	if !apart {
		note = disk.NoteOf(rec.Value)
	}
	if kind == disk.KindData {
		d.Keys++
	} else {
		d.Results++
	}
	le := binary.LittleEndian
	b := append(d.head[:0], byte(kind))
	b = le.AppendUint32(b, uint32(len(key)))
	b = le.AppendUint64(le.AppendUint64(b, uint64(rec.Version)), rec.Expiry)
	b = le.AppendUint64(le.AppendUint64(b, note.Length), note.Sum)
	d.head = append(b, key...)
	_, _ = d.sum.Write(d.head) // never fails
	return nil
}

// is compares what was added with what it has to be. ErrBase.
func (d *baser) is(want *disk.GroupBase) error {
	d.end()
	return SameBase(&d.GroupBase, want)
}

// SameBase returns nil, or ErrBase with what a base has and what the group began with.
func SameBase(has, want *disk.GroupBase) error {
	if *has == *want {
		return nil
	}
	return fmt.Errorf("%w: it has %d keys and %d results of requests, sum %x, and the group began with %d and %d, sum %x: was the data directory damaged, or put together of two?",
		ErrBase, has.Keys, has.Results, has.Sum, want.Keys, want.Results, want.Sum)
}

func (d *baser) end() { d.Sum = d.sum.Sum128().Bytes() }

// BaseOf reads what a base has of the shards of a group. pace is called behind each piece of so many bytes, and waits as long as it likes; its error ends the reading.
//
// Errors: *base.CorruptError or a text for what is damaged, pace's, ctx's, and those of the base.
func BaseOf(ctx context.Context, from Source, shards []uint16, pace func(ctx context.Context, bytes int) error) (disk.GroupBase, error) {
	d, read := newBaser(), 0
	for _, shard := range shards {
		for _, kind := range [...]disk.Kind{disk.KindData, disk.KindDedup} {
			walk, err := from.Records(disk.KindBounds(shard, kind))
			if err != nil {
				return disk.GroupBase{}, fmt.Errorf("image: shard %d: %w", shard, err)
			}
			for there := walk.First(); there && err == nil; there = walk.Next() {
				var value []byte
				if value, err = walk.Value(); err == nil {
					err = d.add(walk.Key(), value)
				}
				if read += len(value); err == nil && read >= digestPiece {
					err = pace(ctx, read)
					read = 0
				}
			}
			if err = errors.Join(err, walk.Error(), walk.Close(), ctx.Err()); err != nil {
				return disk.GroupBase{}, err
			}
		}
	}
	d.end()
	return d.GroupBase, nil
}
