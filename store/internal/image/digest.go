package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// A Digest is a sum of what a base has of a group, by which replicas are compared.
//
// It is over what all replicas must have alike at one entry, and over nothing else: the state, keys with version, expiry
// and value, and the results of requests. How a base stores that is left out, because it depends on where its checkpoints ended: a
// key that is listed for its expiry may stand there although the key was written since, and so may a value that stood apart.
// Each value is read and compared with the checksums that stand beside it, so that a base which has rotted has no digest.
type Digest struct {
	Sum     [sha256.Size]byte
	Keys    uint64
	Results uint64 // of requests
}

// digestPiece is how many bytes are read between two calls of pace, one record more at most.
const digestPiece = 256 << 10

// DigestOf reads what a base has of a group in a state. pace is called behind each piece of so many bytes, and waits as long as it likes; its
// error ends the reading.
//
// Errors: *base.CorruptError for what is damaged, pace's, ctx's, and those of the base.
func DigestOf(ctx context.Context, from Source, s *entry.State, pace func(ctx context.Context, bytes int) error) (Digest, error) {
	d := digester{sum: sha256.New(), pace: pace}
	state := entry.AppendState(nil, s)
	d.add(0, state, 0, 0, nil)
	for _, shard := range s.Shards {
		if err := d.shard(ctx, from, shard); err != nil {
			return Digest{}, err
		}
	}
	d.sum.Sum(d.Sum[:0])
	return d.Digest, nil
}

// A digester is a digest that is being made.
type digester struct {
	Digest
	sum  hash.Hash
	pace func(ctx context.Context, bytes int) error
	read int    // since pace was called
	head []byte // to be used again
}

// add adds a record. All lengths stand in front, so no two lists of records are the same bytes.
func (d *digester) add(kind disk.Kind, key []byte, version, expiry uint64, value []byte) {
	le := binary.LittleEndian
	b := append(d.head[:0], byte(kind))
	b = le.AppendUint32(b, uint32(len(key)))
	b = le.AppendUint64(b, version)
	b = le.AppendUint64(b, expiry)
	b = le.AppendUint64(b, uint64(len(value)))
	d.head = append(b, key...)
	_, _ = d.sum.Write(d.head) // never fails
	_, _ = d.sum.Write(value)
	d.read += len(d.head) + len(value)
}

// shard adds what a base has of a shard.
func (d *digester) shard(ctx context.Context, from Source, shard uint16) error {
	for _, kind := range [...]disk.Kind{disk.KindData, disk.KindDedup} {
		walk, err := from.Records(disk.KindBounds(shard, kind))
		if err != nil {
			return fmt.Errorf("image: shard %d: %w", shard, err)
		}
		err = d.walk(ctx, kind, &walk)
		if err := errors.Join(err, walk.Close()); err != nil {
			return err
		}
	}
	return nil
}

// walk adds the records of a kind of a shard.
func (d *digester) walk(ctx context.Context, kind disk.Kind, walk *disk.Records) error {
	for there := walk.First(); there; there = walk.Next() {
		rec, err := recordOf(walk, kind)
		if err != nil {
			return err
		}
		if kind == disk.KindData {
			d.Keys++
		} else {
			d.Results++
		}
		d.add(kind, walk.Key(), uint64(rec.Version), rec.Expiry, rec.Value)
		if d.read < digestPiece {
			continue
		}
		err = d.pace(ctx, d.read)
		if d.read = 0; err != nil {
			return err
		}
	}
	return errors.Join(walk.Error(), ctx.Err())
}

// recordOf reads the record at which a walk stands, with its value.
func recordOf(walk *disk.Records, kind disk.Kind) (disk.Record, error) {
	if kind == disk.KindData {
		rec, damage, err := walk.Whole()
		if err == nil && damage != nil {
			err = damage
		}
		return rec, err
	}
	b, err := walk.Value()
	if err != nil {
		return disk.Record{}, err
	}
	rec, fault := disk.ParseRecord(b, walk.Key())
	shard, _, name, _ := disk.ParseKey(walk.Key())
	if _, ok := base.ParseSlotKey(name); fault == nil && !ok {
		fault = fmt.Errorf("request id of %d bytes", len(name))
	}
	if _, ok := dedup.ParseResult(rec.Version, rec.Value); fault == nil && !ok {
		fault = fmt.Errorf("result of %d bytes", len(rec.Value))
	}
	if fault != nil {
		return rec, &base.CorruptError{Shard: shard, Key: append([]byte("request "), name...), Detail: fault.Error()}
	}
	return rec, nil
}
