package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// Which replicas of groups of shards a store has, stands in its base: a record of kind meta for each, by the number of the
// group, which is written when the store gets the replica, and never changes until the store gives it up.
//
//	replica.N    id of the replica, u64 | shards, u16 each, rising
//	stream.N     the stream of the log that has its entries, u64; without one it is the first that a replica of the group has here
//	base.N       what the base had of a group that began with keys, at entry 1 (GroupBase): keys, u64 | results of requests, u64 | sum, 16 bytes
//	former.N     the newest id, u64, of those that the store has given up; it stays for ever
//
// Versions in these shards are numbers of the group, and no epoch of the store is in them.
//
// A stream of the log that was dropped is not used again, so a replica that comes behind another one has a stream of its own. An id that was given
// up is not used again either: what that replica promised is forgotten, and if it came back it could vote twice in a term.

// A Replica is one that a store has.
type Replica struct {
	Group  uint32
	ID     uint64
	Shards []uint16 // rising
	Stream uint64   // of the log; 0: the first of the group
}

// A GroupBase is what a base has of the shards of a group that began with keys, in few bytes (package image, BaseOf).
type GroupBase struct {
	Keys    uint64
	Results uint64 // of requests
	Sum     [16]byte
}

// baseLen is the length of one that is encoded.
const baseLen = 32

const (
	baseName    = "base."
	replicaName = "replica."
	streamName  = "stream."
	formerName  = "former."
)

// groupFact is the key of a fact of a group.
func groupFact(name string, group uint32) []byte {
	return strconv.AppendUint(metaKey(name), uint64(group), 10)
}

// wordRecord is the record of a fact that is one number.
func wordRecord(key []byte, n uint64) []byte {
	value := binary.LittleEndian.AppendUint64(nil, n)
	rec := make([]byte, RecordSize(len(value), false))
	PutRecord(rec, key, Record{Value: value})
	return rec
}

// wordIn reads a fact that is one number, which is not 0; 0: it is not there. Errors: a *base.CorruptError, what the disk said.
func wordIn(db pebble.Reader, name string, group uint32) (uint64, error) {
	name += strconv.FormatUint(uint64(group), 10)
	b, err := getMeta(db, name)
	if err != nil || b == nil {
		return 0, err
	}
	if len(b) != 8 || binary.LittleEndian.Uint64(b) == 0 {
		return 0, &base.CorruptError{Shard: StoreShard, Key: []byte(name), Detail: fmt.Sprintf("%x is no number of it", b)}
	}
	return binary.LittleEndian.Uint64(b), nil
}

// StreamRecord returns the key and the record of a replica's stream, which stands behind Record in the order of keys. rec is nil if Stream is 0.
func (r *Replica) StreamRecord() (key, rec []byte) {
	key = groupFact(streamName, r.Group)
	if r.Stream != 0 {
		rec = wordRecord(key, r.Stream)
	}
	return key, rec
}

// BaseRecord returns the key and the record of what a group began with; rec is nil if b is. The key stands before all others of a group.
func (r *Replica) BaseRecord(b *GroupBase) (key, rec []byte) {
	key = groupFact(baseName, r.Group)
	if b == nil {
		return key, nil
	}
	value := binary.LittleEndian.AppendUint64(nil, b.Keys)
	value = append(binary.LittleEndian.AppendUint64(value, b.Results), b.Sum[:]...)
	rec = make([]byte, RecordSize(len(value), false))
	PutRecord(rec, key, Record{Value: value})
	return key, rec
}

// GroupBaseIn returns what a base says that a group began with; nil: it did not begin with keys, or not here.
//
// Errors: a *base.CorruptError, what the disk said.
func GroupBaseIn(from interface {
	Named(key []byte) ([]byte, error)
}, group uint32) (*GroupBase, error) {
	key := groupFact(baseName, group)
	value, err := from.Named(key)
	if err != nil || value == nil {
		return nil, err
	}
	if len(value) != baseLen {
		return nil, &base.CorruptError{Shard: StoreShard, Key: key, Detail: fmt.Sprintf("%d bytes, expected %d", len(value), baseLen)}
	}
	b := &GroupBase{Keys: binary.LittleEndian.Uint64(value), Results: binary.LittleEndian.Uint64(value[8:])}
	copy(b.Sum[:], value[16:])
	return b, nil
}

// FormerRecord returns the key and the record which say that a replica was given up. The key stands before all others of a group but that of BaseRecord.
func (r *Replica) FormerRecord() (key, rec []byte) {
	key = groupFact(formerName, r.Group)
	return key, wordRecord(key, r.ID)
}

// Former returns the newest id of the replicas of a group that the store has given up; 0: there was none. Errors: a *base.CorruptError, what the disk
// said.
func (b *Base) Former(group uint32) (id uint64, err error) { return wordIn(b.d.db, formerName, group) }

// Record returns the key and the record of a replica.
func (r *Replica) Record() (key, rec []byte) {
	key = groupFact(replicaName, r.Group)
	value := binary.LittleEndian.AppendUint64(nil, r.ID)
	for _, id := range r.Shards {
		value = binary.LittleEndian.AppendUint16(value, id)
	}
	rec = make([]byte, RecordSize(len(value), false))
	PutRecord(rec, key, Record{Value: value})
	return key, rec
}

// parseReplica reads one.
func parseReplica(key, raw []byte) (r Replica, err error) {
	n, err := strconv.ParseUint(string(key[len(metaKey(replicaName)):]), 10, 32)
	if err != nil {
		return r, err
	}
	rec, err := ParseRecord(raw, key)
	if err != nil {
		return r, err
	}
	b := rec.Value
	if len(b) < 10 || len(b)%2 != 0 {
		return r, fmt.Errorf("a replica of %d bytes", len(b))
	}
	r.Group, r.ID = uint32(n), binary.LittleEndian.Uint64(b)
	for b = b[8:]; len(b) > 0; b = b[2:] {
		r.Shards = append(r.Shards, binary.LittleEndian.Uint16(b))
	}
	if r.ID == 0 || !slices.IsSorted(r.Shards) || len(slices.Compact(slices.Clone(r.Shards))) != len(r.Shards) {
		return r, errors.New("a replica that cannot be")
	}
	return r, nil
}

// Replicas returns those that the store has.
func (b *Base) Replicas() ([]Replica, error) { return replicasIn(b.d.db) }

func replicasIn(db pebble.Reader) (list []Replica, err error) {
	lower := metaKey(replicaName)
	upper := slices.Concat(lower[:len(lower)-1], []byte{replicaName[len(replicaName)-1] + 1})
	records, err := recordsOf(db, lower, upper)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	for records.First(); records.Valid(); records.Next() {
		raw, err := records.Value()
		if err != nil {
			return nil, err
		}
		r, err := parseReplica(records.Key(), raw)
		if err != nil {
			return nil, &base.CorruptError{Shard: StoreShard, Key: slices.Clone(records.Key()), Err: err}
		}
		if r.Stream, err = wordIn(db, streamName, r.Group); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, records.Error()
}
