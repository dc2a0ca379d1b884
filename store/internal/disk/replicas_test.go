package disk

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
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
	former, _ := want.FormerRecord()
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
