package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// A sink is what a receiver has got.
type sink map[string]string

func (s sink) Set(key, value []byte) error {
	s[string(key)] = string(value)
	return nil
}

// emptyBase is a base in memory.
func emptyBase(t testing.TB) (*disk.Disk, map[string]string) {
	t.Helper()
	fence := base.NewFence(slog.New(slog.DiscardHandler), func(err error) { t.Errorf("fenced: %v", err) })
	d := disk.New(disk.Config{Dir: "store", FS: vfs.NewMem(), Shards: 8, MinFreeBytes: -1}, fence, new(base.Counters))
	if _, _, err := d.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.ForTests().Drop(); err != nil {
			t.Error(err)
		}
	})
	return d, map[string]string{}
}

// aBase is one with some records in shards 0 to 4.
func aBase(t testing.TB) (*disk.Disk, map[string]string) {
	t.Helper()
	d, all := emptyBase(t)
	b := d.ForTests().DB().NewBatch()
	put := func(key []byte, r disk.Record) {
		rec := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
		disk.PutRecord(rec, key, r)
		all[string(key)] = string(rec)
		if err := b.Set(key, rec, nil); err != nil {
			t.Fatal(err)
		}
	}
	for shard := range uint16(5) {
		for i := range 20 {
			name := fmt.Appendf(nil, "k%02d", i)
			r := disk.Record{Version: 7, Value: bytes.Repeat([]byte{byte(i)}, i*i)}
			if i%3 == 0 {
				r.Expiry = 5_000_000
				put(disk.AppendExpiryKey(nil, shard, 5, name), disk.Record{Version: 7})
			}
			put(disk.AppendKey(nil, shard, disk.KindData, name), r)
		}
		id := base.RequestID{Seq: 3, Slot: 2}
		result, slot := dedup.ResultOf(&id, &base.Result{Version: 7}), id.SlotKey()
		value := make([]byte, dedup.ValueLen)
		result.Encode(value)
		put(disk.AppendKey(nil, shard, disk.KindDedup, slot.Append(nil)), disk.Record{Version: 7, Value: value})
		large := bytes.Repeat([]byte{byte(shard)}, 70_000)
		key := disk.AppendKey(nil, shard, disk.KindData, []byte("large"))
		noted := make([]byte, disk.NotedSize(false))
		disk.PutNoted(noted, key, 7, 0, disk.NoteOf(large))
		all[string(key)] = string(noted)
		if err := b.Set(key, noted, nil); err != nil {
			t.Fatal(err)
		}
		put(disk.AppendKey(nil, shard, disk.KindValue, []byte("large")), disk.Record{Version: 7, Value: large})
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	return d, all
}

func aState(shards ...uint16) *entry.State {
	return &entry.State{
		State: consensus.State{Applied: 9, Term: 2, Config: consensus.Config{Index: 3, Voters: []consensus.Member{{ID: 1, Node: "n1"}}}},
		Turn:  entry.Turn{Reign: 4, Next: 77}, Shards: slices.Sorted(slices.Values(shards)),
	}
}

// imageOf is the image of some shards of a base.
func imageOf(t testing.TB, d *disk.Disk, shards ...uint16) []byte {
	t.Helper()
	snap := d.Snapshot()
	r := NewReader(snap, aState(shards...), len(shards) == 1) // as good as any
	b, err := io.ReadAll(iotest.OneByteReader(r))
	if err := errors.Join(err, r.Close(), snap.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestImageIsTheShards: what arrives is what the base has of the group's shards, with the state, and nothing else.
func TestImageIsTheShards(t *testing.T) {
	d, all := aBase(t)
	for _, shards := range [][]uint16{{3, 1}, {0}, {7}, {0, 1, 2, 3, 4, 5, 6, 7}} {
		got := sink{}
		s, isShort, err := Load(t.Context(), bytes.NewReader(imageOf(t, d, shards...)), shards, got)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for k, v := range all {
			for _, id := range shards {
				if binary.BigEndian.Uint16([]byte(k)) == id {
					want[k] = v
				}
			}
		}
		if !maps.Equal(got, want) || !bytes.Equal(entry.AppendState(nil, &s), entry.AppendState(nil, aState(shards...))) || isShort != (len(shards) == 1) {
			t.Errorf("shards %v: %d records, want %d; %+v", shards, len(got), len(want), s)
		}
	}
}

// TestEveryByteCounts: an image that was altered in one byte, or cut off, is none.
func TestEveryByteCounts(t *testing.T) {
	d, _ := aBase(t)
	b := imageOf(t, d, 2)
	for i := 0; i < len(b); i += 1 + i/2000 {
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 8)
		if _, _, err := Load(t.Context(), bytes.NewReader(bad), []uint16{2}, sink{}); !errors.Is(err, ErrImage) {
			t.Fatalf("byte %d of %d altered: %v", i, len(b), err)
		}
		if _, _, err := Load(t.Context(), bytes.NewReader(b[:i]), []uint16{2}, sink{}); !errors.Is(err, ErrImage) {
			t.Fatalf("%d bytes of %d: %v", i, len(b), err)
		}
	}
	if _, _, err := Load(t.Context(), bytes.NewReader(append(b, 0)), []uint16{2}, sink{}); !errors.Is(err, ErrImage) {
		t.Errorf("a byte more: %v", err)
	}
}

// forged is an image of these records, with right sums.
func forged(records ...[2]string) []byte {
	state := entry.AppendState(nil, aState(2))
	b := binary.LittleEndian.AppendUint64(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(state)))
	b = append(binary.LittleEndian.AppendUint32(b, 0), state...)
	for _, r := range records {
		b = append(append(appendPair(b, len(r[0]), len(r[1])), r[0]...), r[1]...)
	}
	b = binary.LittleEndian.AppendUint64(appendPair(b, 0, 0), uint64(len(records)))
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

// record is a good record under a key.
func record(key []byte, value string) [2]string {
	rec := make([]byte, disk.RecordSize(len(value), false))
	disk.PutRecord(rec, key, disk.Record{Version: 7, Value: []byte(value)})
	return [2]string{string(key), string(rec)}
}

// TestHostile: what a replica does not send is refused, whatever its sums say.
func TestHostile(t *testing.T) {
	data := func(shard uint16, key string) []byte { return disk.AppendKey(nil, shard, disk.KindData, []byte(key)) }
	a, b := record(data(2, "a"), "1"), record(data(2, "b"), "2")
	if _, _, err := Load(t.Context(), bytes.NewReader(forged(a, b)), []uint16{2}, sink{}); err != nil {
		t.Fatal(err)
	}
	unknown := forged(a)
	unknown[12] = 2
	if _, _, err := Load(t.Context(), bytes.NewReader(unknown), []uint16{2}, sink{}); !errors.Is(err, ErrImage) {
		t.Errorf("a flag that nobody knows: %v", err)
	}
	for name, records := range map[string][][2]string{
		"keys that fall":              {b, a},
		"a key twice":                 {a, a},
		"another shard's key":         {record(data(3, "a"), "1")},
		"a key of a shard before it":  {record(data(1, "a"), "1")},
		"a key of the store's own":    {record(disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte("id")), "1")},
		"a fact of the shard":         {record(disk.AppendKey(nil, 2, disk.KindMeta, []byte("id")), "1")},
		"a kind that is none":         {record(disk.AppendKey(nil, 2, 99, []byte("id")), "1")},
		"a key without a name":        {record(data(2, ""), "1")},
		"a record of another key":     {{string(data(2, "a")), b[1]}},
		"a record that is none":       {{string(data(2, "a")), "x"}},
		"a result that is none":       {record(disk.AppendKey(nil, 2, disk.KindDedup, []byte("0123456789abcdefgh")), "x")},
		"a result of no slot":         {record(disk.AppendKey(nil, 2, disk.KindDedup, []byte("x")), "x")},
		"a listed key without a name": {record(disk.AppendKey(nil, 2, disk.KindExpiry, []byte("12345678")), "")},
		"a key that is too long":      {record(data(2, string(make([]byte, 5000))), "1")},
	} {
		got := sink{}
		if _, _, err := Load(t.Context(), bytes.NewReader(forged(records...)), []uint16{2}, got); !errors.Is(err, ErrImage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, others := range [][]uint16{nil, {1}, {2, 3}} {
		if _, _, err := Load(t.Context(), bytes.NewReader(forged(a)), others, sink{}); !errors.Is(err, ErrImage) {
			t.Errorf("an image of shard 2 for shards %v: %v", others, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Load(ctx, bytes.NewReader(forged(a)), []uint16{2}, sink{}); !errors.Is(err, context.Canceled) {
		t.Errorf("it was given up: %v", err)
	}
	broken := errors.New("broken")
	if _, _, err := Load(t.Context(), iotest.ErrReader(broken), []uint16{2}, sink{}); !errors.Is(err, broken) {
		t.Errorf("the network: %v", err)
	}
}

// FuzzLoad: any bytes are an image or an error, and take no more memory than they have.
func FuzzLoad(f *testing.F) {
	f.Add(forged())
	f.Add(forged(record(disk.AppendKey(nil, 2, disk.KindData, []byte("a")), "1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := Load(t.Context(), bytes.NewReader(b), []uint16{2}, sink{}); err != nil && !errors.Is(err, ErrImage) {
			t.Fatal(err)
		}
	})
}
