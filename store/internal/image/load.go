package image

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// A Sink takes what a base is to have, in strictly rising keys; *tables.Tables is one.
type Sink interface {
	Set(key, value []byte) error
}

// Load reads an image of these shards to its end, and hands each record to a sink. It takes any
// bytes; what it needs of memory is one record. The caller uses what the sink has if Load returns
// nil, and else none of it. isShort is what the sender says (NewReader).
//
// Errors: ErrImage, those of the reader and of the sink, ctx's.
func Load(ctx context.Context, from io.Reader, shards []uint16, to Sink) (s entry.State, isShort bool, err error) {
	l := &loader{from: bufio.NewReaderSize(from, 256<<10), sum: xxh3.New(), left: slices.Sorted(slices.Values(shards))}
	head, err := l.take(headLen)
	if err != nil {
		return s, false, err
	}
	size := binary.LittleEndian.Uint32(head[8:])
	flags := binary.LittleEndian.Uint32(head[12:])
	if isShort = flags&short != 0; binary.LittleEndian.Uint64(head) != magic || size > maxState || flags&^short != 0 {
		return s, false, malformed("it begins with %x", head)
	}
	state, err := l.take(int(size))
	if err != nil {
		return s, false, err
	}
	if s, err = entry.ParseState(state); err != nil {
		return s, false, malformed("its state: %v", err)
	}
	if !slices.Equal(s.Shards, l.left) {
		return s, false, malformed("it is of shards %v, and the group has %v", s.Shards, l.left)
	}
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return s, false, err
		}
		if more, err = l.record(to); err != nil {
			return s, false, err
		}
	}
	if _, err := l.from.ReadByte(); !errors.Is(err, io.EOF) {
		return s, false, malformed("there is more behind its end (%v)", err)
	}
	return s, isShort, nil
}

// A loader is an image that is read.
type loader struct {
	from  *bufio.Reader
	sum   *xxh3.Hasher
	left  []uint16 // shards that may still come
	last  []byte   // key
	buf   []byte
	count uint64
}

// take reads so many bytes, good until the next call.
func (l *loader) take(n int) ([]byte, error) {
	b := slices.Grow(l.buf[:0], n)[:n]
	l.buf = b
	if _, err := io.ReadFull(l.from, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, malformed("it ends early, behind %d records", l.count)
		}
		return nil, err
	}
	_, _ = l.sum.Write(b)
	return b, nil
}

// record reads a record, or the end.
func (l *loader) record(to Sink) (more bool, err error) {
	head, err := l.take(pairLen)
	if err != nil {
		return false, err
	}
	nKey, nValue := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	switch {
	case nKey == 0 && nValue == 0:
		return false, l.end()
	case nKey < 4 || nKey > maxKey || nValue > maxValue:
		return false, malformed("a key of %d bytes and a value of %d", nKey, nValue)
	}
	b, err := l.take(int(nKey + nValue))
	if err != nil {
		return false, err
	}
	key, value := b[:nKey], b[nKey:]
	if bytes.Compare(key, l.last) <= 0 {
		return false, malformed("key %x behind key %x", key, l.last)
	}
	l.last = append(l.last[:0], key...)
	id := binary.BigEndian.Uint16(key)
	for len(l.left) > 0 && l.left[0] < id {
		l.left = l.left[1:]
	}
	if len(l.left) == 0 || l.left[0] != id {
		return false, malformed("a key of shard %d, which is none of the group's", id)
	}
	if err := check(key, value); err != nil {
		return false, malformed("key %x: %v", key, err)
	}
	l.count++
	return true, to.Set(key, value)
}

// end reads the end.
func (l *loader) end() error {
	b, err := l.take(8)
	if err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(b); n != l.count {
		return malformed("%d records, and it says %d", l.count, n)
	}
	sum := l.sum.Sum64()
	if b, err = l.take(8); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(b); got != sum {
		return malformed("checksum %016x, expected %016x", sum, got)
	}
	return nil
}

// check holds a record to what a base has under such a key.
func check(key, value []byte) error {
	_, kind, rest, ok := disk.ParseKey(key)
	if !ok || !slices.Contains(kinds, kind) {
		return errors.New("a key of no kind that a group has")
	}
	if kind == disk.KindData {
		_, note, _, err := disk.ParseNoted(value, key)
		if err == nil && note.Table != 0 {
			err = errors.New("its value stands in a table of this base")
		}
		return err
	}
	rec, err := disk.ParseRecord(value, key)
	if err != nil {
		return err
	}
	switch kind {
	case disk.KindDedup:
		_, named := base.ParseSlotKey(rest)
		if _, ok := dedup.ParseResult(rec.Version, rec.Value); !ok || !named {
			return errors.New("the result of a request that cannot be")
		}
	case disk.KindExpiry:
		if _, _, ok := disk.ParseExpiryKey(rest); !ok {
			return errors.New("a listed key that is none")
		}
	}
	return nil
}
