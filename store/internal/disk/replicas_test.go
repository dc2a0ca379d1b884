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
