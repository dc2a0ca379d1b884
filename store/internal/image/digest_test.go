package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

func noPace(context.Context, int) error { return nil }

// digest is the digest of some shards of a base, in a state.
func digest(t testing.TB, d *disk.Disk, s *entry.State) Digest {
	t.Helper()
	snap := d.Snapshot()
	got, err := DigestOf(t.Context(), snap, s, noPace)
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// set writes a record into a base; nil: it takes what is there away.
func set(t testing.TB, d *disk.Disk, key []byte, r *disk.Record) {
	t.Helper()
	db, err := d.ForTests().DB(), error(nil)
	if r == nil {
		err = db.Delete(key, pebble.NoSync)
	} else {
		b := make([]byte, disk.RecordSize(len(r.Value), r.Expiry != 0))
		disk.PutRecord(b, key, *r)
		err = db.Set(key, b, pebble.NoSync)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDigestIsOfTheContent: bases with the same content have the same digest, and each difference in what replicas must have alike gives
// another one; what depends on checkpoints, and other shards, do not count.
func TestDigestIsOfTheContent(t *testing.T) {
	key := func(shard uint16, kind disk.Kind, name string) []byte {
		return disk.AppendKey(nil, shard, kind, []byte(name))
	}
	state := aState(1, 3)
	one, _ := aBase(t)
	want := digest(t, one, state)
	if other, _ := aBase(t); digest(t, other, state) != want || want.Keys != 2*21 || want.Results != 2 {
		t.Errorf("%+v, and of a base that was made alike %+v", want, digest(t, other, state))
	}
	for name, change := range map[string]func(d *disk.Disk){
		"a value": func(d *disk.Disk) {
			set(t, d, key(1, disk.KindData, "k01"), &disk.Record{Version: 7, Value: []byte{9}})
		},
		"a longer one": func(d *disk.Disk) {
			set(t, d, key(1, disk.KindData, "k01"), &disk.Record{Version: 7, Value: []byte{1, 1}})
		},
		"a version": func(d *disk.Disk) {
			set(t, d, key(1, disk.KindData, "k01"), &disk.Record{Version: 8, Value: []byte{1}})
		},
		"an expiry": func(d *disk.Disk) {
			set(t, d, key(1, disk.KindData, "k01"), &disk.Record{Version: 7, Value: []byte{1}, Expiry: 9})
		},
		"a key less":    func(d *disk.Disk) { set(t, d, key(3, disk.KindData, "k05"), nil) },
		"a key more":    func(d *disk.Disk) { set(t, d, key(3, disk.KindData, "l"), &disk.Record{Version: 7}) },
		"another shard": func(d *disk.Disk) { set(t, d, key(1, disk.KindData, "l"), &disk.Record{Version: 7}) },
		"no results": func(d *disk.Disk) {
			lower, upper := disk.KindBounds(3, disk.KindDedup)
			if err := d.ForTests().DB().DeleteRange(lower, upper, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		},
	} {
		d, _ := aBase(t)
		change(d)
		if got := digest(t, d, state); got.Sum == want.Sum {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	moved := digest(t, func() *disk.Disk {
		d, _ := aBase(t)
		set(t, d, key(3, disk.KindData, "l"), &disk.Record{Version: 7})
		return d
	}(), state)
	if other := digest(t, func() *disk.Disk {
		d, _ := aBase(t)
		set(t, d, key(1, disk.KindData, "l"), &disk.Record{Version: 7})
		return d
	}(), state); other.Sum == moved.Sum || other.Keys != moved.Keys {
		t.Errorf("a key in one shard and in another: %+v, %+v", moved, other)
	}
	for name, change := range map[string]func(d *disk.Disk){
		"a listed key": func(d *disk.Disk) {
			set(t, d, disk.AppendExpiryKey(nil, 1, 77, []byte("k02")), &disk.Record{Version: 3})
		},
		"a value that is stale": func(d *disk.Disk) {
			set(t, d, key(1, disk.KindValue, "k02"), &disk.Record{Version: 3, Value: []byte("v")})
		},
		"a key elsewhere": func(d *disk.Disk) { set(t, d, key(2, disk.KindData, "l"), &disk.Record{Version: 7}) },
	} {
		d, _ := aBase(t)
		change(d)
		if got := digest(t, d, state); got != want {
			t.Errorf("%s: another digest", name)
		}
	}
	for name, change := range map[string]func(s *entry.State){
		"entry":         func(s *entry.State) { s.Applied++ },
		"term":          func(s *entry.State) { s.Term++ },
		"reign":         func(s *entry.State) { s.Turn.Reign++ },
		"number":        func(s *entry.State) { s.Turn.Next++ },
		"configuration": func(s *entry.State) { s.Config.Index-- },
	} {
		s := *state
		change(&s)
		if got := digest(t, one, &s); got.Sum == want.Sum {
			t.Errorf("another %s: the same digest", name)
		}
	}
}

// TestDigestOfAnImage: what a replica gets as an image has the digest of its sender.
func TestDigestOfAnImage(t *testing.T) {
	from, _ := aBase(t)
	to, _ := emptyBase(t)
	got := sink{}
	s, _, err := Load(t.Context(), bytes.NewReader(imageOf(t, from, 0, 4)), []uint16{0, 4}, got)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range got {
		if err := to.ForTests().DB().Set([]byte(k), []byte(v), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := digest(t, from, aState(0, 4)), digest(t, to, &s); a != b {
		t.Errorf("the sender has %+v, the receiver %+v", a, b)
	}
}

// TestDigestOfWhatIsDamaged: a base of which a record or a value cannot be believed has no digest.
func TestDigestOfWhatIsDamaged(t *testing.T) {
	seed := rand.Uint64N(1 << 40)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	_, all := aBase(t)
	for k, v := range all {
		key := []byte(k)
		shard, kind, _, _ := disk.ParseKey(key)
		if shard != 2 || kind == disk.KindExpiry || rng.IntN(3) == 0 && kind == disk.KindData {
			continue
		}
		d, _ := aBase(t)
		bad := []byte(v)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		if err := d.ForTests().DB().Set(key, bad, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		snap := d.Snapshot()
		_, err := DigestOf(t.Context(), snap, aState(2), noPace)
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("key %x is damaged: %v", key, err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d, _ := aBase(t)
	for name, key := range map[string][]byte{
		"the result of no slot": disk.AppendKey(nil, 2, disk.KindDedup, []byte("x")),
	} {
		set(t, d, key, &disk.Record{Version: 7, Value: []byte("x")})
		snap := d.Snapshot()
		if _, err := DigestOf(t.Context(), snap, aState(2), noPace); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDigestIsPaced: pace is asked behind each piece, and ends the reading; so does ctx.
func TestDigestIsPaced(t *testing.T) {
	d, _ := emptyBase(t)
	for i := range 40 {
		set(t, d, disk.AppendKey(nil, 2, disk.KindData, fmt.Appendf(nil, "k%02d", i)), &disk.Record{Version: 7, Value: make([]byte, 50_000)})
	}
	snap := d.Snapshot()
	defer snap.Close()
	calls, sum := 0, 0
	if _, err := DigestOf(t.Context(), snap, aState(2), func(_ context.Context, n int) error {
		calls++
		sum += n
		if n < digestPiece || n > digestPiece+60_000 {
			t.Errorf("a piece of %d bytes", n)
		}
		return nil
	}); err != nil || calls < 5 || sum < 40*50_000-digestPiece {
		t.Errorf("%d calls, %d bytes, %v", calls, sum, err)
	}
	enough := errors.New("enough")
	calls = 0
	if _, err := DigestOf(t.Context(), snap, aState(2), func(context.Context, int) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := DigestOf(ctx, snap, aState(2), noPace); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
