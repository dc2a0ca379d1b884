package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// A Source is a base at one moment; disk.Snapshot is one.
type Source interface {
	Records(lower, upper []byte) (disk.Records, error)
}

// A Reader gives the bytes of an image. One goroutine uses it.
type Reader struct {
	from   Source
	shards []uint16 // that are left, rising
	walk   *disk.Records
	buf    []byte // made, and not read
	at     int    // of buf
	sum    *xxh3.Hasher
	count  uint64
	over   bool
	err    error
	begins *disk.GroupBase // what all of it has to be; nil: nobody knows
	has    baser
}

// Begins says what the group began with, of an image of that very state: if what is read is something else, the reading ends with ErrBase, and whoever gets it has no image.
func (r *Reader) Begins(with *disk.GroupBase) { r.begins, r.has = with, newBaser() }

// NewReader returns the bytes of an image of a state, and of its shards. from stays the caller's, until Close. isShort: results of requests
// are missing that whoever gets it must not take for new.
func NewReader(from Source, s *entry.State, isShort bool) *Reader {
	r := &Reader{from: from, shards: s.Shards, sum: xxh3.New()}
	state := entry.AppendState(nil, s)
	r.buf = binary.LittleEndian.AppendUint64(r.buf, magic)
	r.buf = binary.LittleEndian.AppendUint32(r.buf, uint32(len(state)))
	flags := uint32(0)
	if isShort {
		flags = short
	}
	r.buf = binary.LittleEndian.AppendUint32(r.buf, flags)
	r.add(append(r.buf, state...))
	return r
}

// add counts bytes that were appended to an empty buffer.
func (r *Reader) add(b []byte) {
	_, _ = r.sum.Write(b) // never fails
	r.buf, r.at = b, 0
}

// Read implements io.Reader. An error is that of the base.
func (r *Reader) Read(p []byte) (int, error) {
	for r.at == len(r.buf) {
		if r.err == nil {
			r.err = r.next()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.buf[r.at:])
	r.at += n
	return n, nil
}

// next makes the next record.
func (r *Reader) next() error {
	for {
		switch {
		case r.over:
			return io.EOF
		case r.walk == nil && len(r.shards) == 0:
			if r.begins != nil {
				if err := r.has.is(r.begins); err != nil {
					return err
				}
			}
			r.over = true
			b := appendPair(r.buf[:0], 0, 0)
			b = binary.LittleEndian.AppendUint64(b, r.count)
			_, _ = r.sum.Write(b)
			r.buf, r.at = binary.LittleEndian.AppendUint64(b, r.sum.Sum64()), 0
			return nil
		case r.walk == nil:
			id := r.shards[0]
			r.shards = r.shards[1:]
			walk, err := r.from.Records(disk.AppendKey(nil, id, 0, nil), disk.AppendKey(nil, id+1, 0, nil))
			if err != nil {
				return fmt.Errorf("image: shard %d: %w", id, err)
			}
			r.walk = &walk
			walk.First()
		default:
			r.walk.Next()
		}
		if !r.walk.Valid() {
			err := errors.Join(r.walk.Error(), r.walk.Close())
			if r.walk = nil; err != nil {
				return fmt.Errorf("image: %w", err)
			}
			continue
		}
		key := r.walk.Key()
		value, err := r.walk.Unplaced() // a table of values is this base's own
		if err != nil {
			return fmt.Errorf("image: key %x: %w", key, err)
		}
		// A damaged record stays here: the replica that gets it would refuse all.
		if err := check(key, value); err != nil {
			return fmt.Errorf("image: key %x of this base: %w", key, err)
		}
		if r.begins != nil {
			if err := r.has.add(key, value); err != nil {
				return fmt.Errorf("image: key %x of this base: %w", key, err)
			}
		}
		r.count++
		b := append(appendPair(r.buf[:0], len(key), len(value)), key...)
		r.add(append(b, value...))
		return nil
	}
}

// Close ends the walk.
func (r *Reader) Close() error {
	if r.walk == nil {
		return nil
	}
	err := r.walk.Close()
	r.walk = nil
	return err
}
