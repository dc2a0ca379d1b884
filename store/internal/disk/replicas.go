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
// group, which is written when the store gets the replica, and never changes.
//
//	replica.N    id of the replica, u64 | shards, u16 each, rising
//
// Versions in these shards are numbers of the group, and no epoch of the store is in them.

// A Replica is one that a store has.
type Replica struct {
	Group  uint32
	ID     uint64
	Shards []uint16 // rising
}

const replicaName = "replica."

// Record returns the key and the record of a replica.
func (r *Replica) Record() (key, rec []byte) {
	key = strconv.AppendUint(metaKey(replicaName), uint64(r.Group), 10)
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
		list = append(list, r)
	}
	return list, records.Error()
}
