package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// TestReplicas: a base tells the replicas that it was told of, and what is none is damage that names its key.
func TestReplicas(t *testing.T) {
	db, err := pebble.Open("base", &pebble.Options{FS: vfs.NewMem(), FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	set := func(key, rec []byte) {
		t.Helper()
		if err := db.Set(key, rec, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := replicasIn(db); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	want := []Replica{{Group: 10, ID: 3, Shards: []uint16{0, 4095}}, {Group: 4294967295, ID: 1 << 60, Shards: []uint16{7}}}
	for i := range want {
		set(want[i].Record())
	}
	set(metaKey("replicb"), []byte("another fact"))
	set(metaKey("replica"), []byte("another fact"))
	list, err := replicasIn(db)
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%+v, %v", list, err)
	}

	key, _ := want[0].Record()
	record := func(key, value []byte) []byte {
		rec := make([]byte, RecordSize(len(value), false))
		PutRecord(rec, key, Record{Value: value})
		return rec
	}
	words := func(id uint64, shards ...uint16) []byte {
		b := binary.LittleEndian.AppendUint64(nil, id)
		for _, s := range shards {
			b = binary.LittleEndian.AppendUint16(b, s)
		}
		return b
	}
	for name, c := range map[string][2][]byte{
		"no record":      {key, []byte("x")},
		"of another key": {key, record(metaKey("replica.11"), words(1, 2))},
		"too short":      {key, record(key, words(1))},
		"an odd length":  {key, record(key, append(words(1, 2), 9))},
		"id 0":           {key, record(key, words(0, 2))},
		"a shard twice":  {key, record(key, words(1, 2, 2))},
		"falling shards": {key, record(key, words(1, 3, 2))},
		"no number":      {metaKey("replica.x"), record(metaKey("replica.x"), words(1, 2))},
		"a large number": {metaKey("replica.4294967296"), record(metaKey("replica.4294967296"), words(1, 2))},
	} {
		before, closer, err := db.Get(c[0])
		before = bytes.Clone(before)
		if err == nil {
			closer.Close()
		}
		set(c[0], c[1])
		if list, err := replicasIn(db); err == nil {
			t.Errorf("%s: %+v", name, list)
		}
		if before != nil {
			set(c[0], before)
		} else if err := db.Delete(c[0], pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := replicasIn(db); err != nil {
		t.Error(err)
	}
}

// A namer tells the facts of a base.
type namer struct{ db *pebble.DB }

func (n namer) Named(key []byte) ([]byte, error) { return namedIn(n.db, key) }

// TestReplicaFacts: the stream of a replica and the id of one that was given up come back, and what is none is damage.
func TestReplicaFacts(t *testing.T) {
	db, err := pebble.Open("base", &pebble.Options{FS: vfs.NewMem(), FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	set := func(key, rec []byte) {
		t.Helper()
		if err := db.Set(key, rec, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	want := Replica{Group: 7, ID: 3, Shards: []uint16{1}, Stream: 5<<32 | 7}
	set(want.Record())
	set(want.StreamRecord())
	set(want.FormerRecord())
	if list, err := replicasIn(db); err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], want) {
		t.Errorf("%+v, %v", list, err)
	}
	if id, err := wordIn(db, formerName, 7); err != nil || id != 3 {
		t.Errorf("%d, %v", id, err)
	}
	if id, err := wordIn(db, formerName, 8); err != nil || id != 0 {
		t.Errorf("of a group that never was here: %d, %v", id, err)
	}
	if _, rec := (&Replica{Group: 7}).StreamRecord(); rec != nil {
		t.Error("the first stream is noted")
	}
	first, rec := want.BaseRecord(&GroupBase{Keys: 7, Results: 9, Sum: [16]byte{1, 15: 2}})
	set(first, rec)
	if b, err := GroupBaseIn(namer{db}, 7); err != nil || *b != (GroupBase{Keys: 7, Results: 9, Sum: [16]byte{1, 15: 2}}) {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err := GroupBaseIn(namer{db}, 8); err != nil || b != nil {
		t.Errorf("of a group that did not begin with keys: %+v, %v", b, err)
	}
	half := make([]byte, RecordSize(31, false))
	PutRecord(half, first, Record{Value: make([]byte, 31)})
	set(first, half)
	if b, err := GroupBaseIn(namer{db}, 7); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("half of it: %+v, %v", b, err)
	}
	former, _ := want.FormerRecord()
	if bytes.Compare(first, former) >= 0 {
		t.Error("what the group began with does not stand before all others")
	}
	state, self, stream := metaKey("group.7"), groupFact(replicaName, 7), groupFact(streamName, 7)
	if bytes.Compare(former, state) >= 0 || bytes.Compare(state, self) >= 0 || bytes.Compare(self, stream) >= 0 {
		t.Error("the keys do not rise as whoever writes them takes them to")
	}
	for _, bad := range []string{"", "\x01", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x01\x00\x00\x00\x00\x00\x00\x00\x00"} {
		rec := make([]byte, RecordSize(len(bad), false))
		PutRecord(rec, stream, Record{Value: []byte(bad)})
		set(stream, rec)
		if list, err := replicasIn(db); err == nil {
			t.Errorf("%x: %+v", bad, list)
		}
	}
}
