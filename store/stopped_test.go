package store

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// baseFact returns what the base of a stopped store says of itself under a name.
func baseFact(t *testing.T, c Config, name string) []byte {
	t.Helper()
	db, err := pebble.Open(c.FS.PathJoin(c.Dir, "data"), &pebble.Options{FS: c.FS, ReadOnly: true, Logger: mute{}})
	if err != nil {
		t.Fatal(err)
	}
	key := disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte(name))
	b, closer, err := db.Get(key)
	if err != nil {
		t.Fatalf("%s: %v", name, errors.Join(err, db.Close()))
	}
	rec, err := disk.ParseRecord(append([]byte(nil), b...), key)
	if err := errors.Join(err, closer.Close(), db.Close()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rec.Value
}

// TestStoppedBaseIsWhole: the base of a store that was stopped has all that the store knows,
// without its log: the keys, and what the next life is to know of this one.
func TestStoppedBaseIsWhole(t *testing.T) {
	c := testConfig(memFS())
	c.WatchBytes = MinWatchBytes
	n := open(t, c)
	n.fill()
	for i := range 7 {
		n.put(i%c.Shards, string(rune('a'+i)), "v")
	}
	n.do(Write{Op: Op{Shard: 1, Key: []byte("expires"), Value: []byte("v"), TTL: time.Hour}})
	n.del(0, "a")
	shown, incarnation := uint64(n.Now().UnixMicro()), n.Incarnation()
	newest := uint64(n.Events.log.Newest())
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	keys := uint64(0)
	for b := baseFact(t, c, "keys"); len(b) >= 8; b = b[8:] {
		keys += binary.LittleEndian.Uint64(b)
	}
	if keys != 7 {
		t.Errorf("it counts %d keys, and there are 7", keys)
	}
	// A bound that is written ahead of time is above what is shown at the end.
	if clock := binary.LittleEndian.Uint64(baseFact(t, c, "clock")); clock < shown || clock > uint64(time.Now().Add(time.Second).UnixMicro()) {
		t.Errorf("the bound of the clock is %d, it showed %d", clock, shown)
	}
	watch := baseFact(t, c, "watch")
	if len(watch) != 24 || binary.LittleEndian.Uint64(watch) != incarnation || binary.LittleEndian.Uint64(watch[8:]) != newest {
		t.Errorf("for watchers it has %x, want those of life %x up to %x", watch, incarnation, newest)
	}
	if err := c.FS.RemoveAll("/store/log"); err != nil {
		t.Fatal(err)
	}
	if in, err := Inspect(t.Context(), c.Dir, InspectOptions{FS: c.FS}); err != nil || in.Keys != 7 || in.Log {
		t.Errorf("without its log: %+v, %v", in, err)
	}
}
