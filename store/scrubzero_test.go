package store

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/layout"
)

// ruins are what memory that has gone bad may hold: each makes the word at off
// from the one that stood there.
var ruins = []struct {
	name string
	word func(rng *rand.Rand, was uint64) uint64
}{
	{"zeros", func(*rand.Rand, uint64) uint64 { return 0 }},
	{"ones", func(*rand.Rand, uint64) uint64 { return ^uint64(0) }},
	{"random", func(rng *rand.Rand, _ uint64) uint64 { return rng.Uint64() }},
	{"no version", func(_ *rand.Rand, was uint64) uint64 { return was & 0xff }},
	{"no state", func(_ *rand.Rand, was uint64) uint64 { return was &^ 0xff }},
}

// ruin overwrites the header of a key's item, or whole pages around it.
func (n *node) ruin(shard int, key string, pages bool, word func(was uint64) uint64) layout.Slot {
	n.t.Helper()
	slot := n.placeOf(shard, key)
	first, size := slot.Place(), layout.ItemHeaderSize
	if pages {
		first, size = layout.PlaceOfByte(first.Byte()&^4095), 4096
	}
	for _, sh := range n.shards {
		sh.Mu.Lock()
		defer sh.Mu.Unlock()
	}
	mem := n.mem.Table.Bytes(first, size)
	for off := 0; off < size; off += 8 {
		layout.StoreWord(mem, off, word(layout.LoadWord(mem, off)))
	}
	return slot
}

// TestRuinedHeaders overwrites headers of items, and whole pages of them, with
// what bad memory holds, zeros first. The scrubber goes on, every answer is
// right, and memory is whole again after its passes. A cache loses the keys and
// nothing else.
func TestRuinedHeaders(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const keys = 160
	key := func(i int) string { return fmt.Sprintf("key-%d", i) }
	value := func(i int) string { return pattern(60, key(i)) }
	for _, cache := range []bool{false, true} {
		for i, ruin := range ruins {
			for _, pages := range []bool{false, true} {
				t.Run(fmt.Sprintf("cache=%v/%s/pages=%v", cache, ruin.name, pages), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					c := testConfig(memFS())
					if cache {
						c = cacheConfig(64 << 20)
					}
					c.noKeeper = true
					n := open(t, c)
					n.fill()
					for k := range keys {
						n.put(k%4, key(k), value(k))
					}
					r := n.reader()
					check := func(when string, lost bool) (gone int) {
						t.Helper()
						for k := range keys {
							got, ok := n.get(k%4, key(k))
							if ok && got != value(k) || !ok && !lost {
								t.Fatalf("%s: %s is %q, %v", when, key(k), clip(got), ok)
							}
							if !ok {
								gone++
							}
							if _, got, found, ask := r.get(k%4, key(k)); !ask && (found != ok || found && got != value(k)) {
								t.Fatalf("%s: a reader believes %s to be %q, %v; the server says %v", when, key(k), clip(got), found, ok)
							}
						}
						return gone
					}
					for k := 1; k < keys; k += 37 {
						if n.ruinable(k%4, key(k)) {
							n.ruin(k%4, key(k), pages, func(was uint64) uint64 { return ruin.word(rng, was) })
						}
					}
					check("damaged", cache)
					n.scrubAll(4) // a state that is none is believed a lease later, and an orphan goes another later
					gone := check("scrubbed", cache)
					st := n.Stats()
					if st.Repaired+st.Orphans == 0 {
						t.Errorf("nothing was repaired: %+v", st)
					}
					if cache && gone == 0 {
						t.Error("a cache has lost nothing: was anything damaged?")
					}
					slots := 0
					for i := range 4 {
						slots += n.slotsInUse(i)
					}
					if slots != keys-gone || st.Keys != uint64(slots) {
						t.Errorf("%d slots, %d keys counted, for %d keys", slots, st.Keys, keys-gone)
					}
					for k := range keys {
						n.put(k%4, key(k), value(k))
					}
					if gone := check("put again", false); gone != 0 {
						t.Error("keys are gone that were put again")
					}
				})
			}
		}
	}
}

// ruinable says whether the key still has an item that find knows.
func (n *node) ruinable(shard int, key string) bool {
	sh := n.shard(shard)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	_, ok := sh.Find(n.hash(key), []byte(key))
	return ok
}

// TestRuinedAndChanged: the key of a ruined item is put again, deleted, or both
// before the scrubber comes, so that its slot is nobody's.
func TestRuinedAndChanged(t *testing.T) {
	for _, pages := range []bool{false, true} {
		for _, del := range []bool{false, true} {
			c := testConfig(memFS())
			c.noKeeper = true
			n := open(t, c)
			n.fill()
			n.put(1, "k", pattern(60, "old"))
			n.put(1, "other", pattern(60, "other"))
			n.ruin(1, "k", pages, func(uint64) uint64 { return 0 })
			if del {
				n.del(1, "k")
			} else {
				n.put(1, "k", pattern(60, "new"))
			}
			n.scrubAll(4)
			r := n.reader()
			if del {
				n.wantAbsent(1, "k")
				r.wantAbsent(1, "k")
			} else {
				n.want(1, "k", pattern(60, "new"))
				r.want(1, "k", pattern(60, "new"))
			}
			r.want(1, "other", pattern(60, "other"))
			if st := n.Stats(); st.Orphans == 0 {
				t.Errorf("pages=%v del=%v: the slot of the ruined item was not cleared: %+v", pages, del, st)
			}
		}
	}
}

// TestRuinedWithoutRoom: there is no memory for the good copy, so the ruined
// item's slot comes to say that its key is in Pebble only.
func TestRuinedWithoutRoom(t *testing.T) {
	c := testConfig(memFS())
	c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 4<<20, 1<<20, 512<<10
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	value := func(i int) string { return pattern(100_000, fmt.Sprint(i)) }
	for i := range 60 {
		n.put(1, fmt.Sprintf("key-%d", i), value(i))
	}
	sh := n.shard(1)
	ruined := 0
	for i := range 60 {
		key := fmt.Sprintf("key-%d", i)
		if !n.ruinable(1, key) {
			continue
		}
		slot := n.ruin(1, key, false, func(uint64) uint64 { return 0 })
		ruined++
		h := n.hash(key)
		sh.Mu.Lock()
		p := sh.AddProbe(h, []byte(key))
		done := sh.LinkRepaired(p, slot, layout.MakeVersion(1, uint64(i)+1), 0, 0, nil)
		sh.DropProbe(p)
		sh.Mu.Unlock()
		if !done {
			t.Fatalf("%s was not repaired", key)
		}
		n.want(1, key, value(i))
	}
	if ruined == 0 {
		t.Fatal("no key is in memory")
	}
	n.scrubAll(2)
	for i := range 60 {
		n.want(1, fmt.Sprintf("key-%d", i), value(i))
	}
}

// TestRuinedUnderWrites: a write whose old item was found a moment ago kills
// it whatever stands there by now.
func TestRuinedUnderWrites(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(1, "k", "value")
	slot := n.placeOf(1, "k")
	n.ruin(1, "k", false, func(uint64) uint64 { return 0 })
	sh := n.shard(1)
	sh.Mu.Lock()
	sh.Kill(slot)
	v, state := layout.LoadState(n.mem.Table.Bytes(slot.Place(), layout.ItemHeaderSize))
	sh.Mu.Unlock()
	if v == 0 || state != layout.Dead || v.Epoch() != 0 {
		t.Errorf("killed: version %v, state %v", v, state)
	}
	if err := n.Do(context.Background(), &Write{Op: Op{Shard: 1, Key: []byte("k"), Value: []byte("new")}}); err != nil {
		t.Fatal(err)
	}
	n.want(1, "k", "new")
	count := 0
	sh.Mu.Lock()
	sh.Index.All(func(index.Ref) bool { count++; return true })
	sh.Mu.Unlock()
	if count == 0 {
		t.Error("no slot")
	}
}

// TestReportOfADeadItem: a touch in flight makes its key's item dead, and its slot
// stays. A client that reports it as damaged raises no alarm, and nothing is
// repaired; nor does the scrubber take it for damage while the touch waits for the
// disk, however long that takes.
func TestReportOfADeadItem(t *testing.T) {
	fs := newStalledFS()
	c := testConfig(fs)
	c.noKeeper = true
	var alarms atomic.Int64
	c.Logger = slog.New(alarmHandler{&alarms})
	n := open(t, c)
	n.fill()
	n.do(Write{Op: Op{Shard: 1, Key: []byte("k"), Value: []byte("v"), TTL: time.Hour}})
	old := n.placeOf(1, "k")
	release := fs.stall()
	defer release()
	done := make(chan struct{})
	if err := n.Submit(&Write{Op: Op{Shard: 1, Kind: OpTouch, Key: []byte("k"), TTL: 2 * time.Hour}, Done: func(*Write) { close(done) }}); err != nil {
		t.Fatal(err)
	}
	if _, state := layout.LoadState(n.mem.Table.Bytes(old.Place(), layout.ItemHeaderSize)); state != layout.Dead {
		t.Fatalf("a touch in flight leaves the item %v", state)
	}
	n.Damaged(1, []byte("k"), old.Place(), 1)
	n.scrub.ForTests().LookInto()
	n.scrubAll(3)
	st := n.Stats()
	if st.ReportsDead != 1 || st.ReportsFalse != 0 || st.Damaged != 0 || st.Repaired+st.RepairsLost+st.Orphans != 0 || alarms.Load() != 0 {
		t.Errorf("%d errors logged; %+v", alarms.Load(), st)
	}
	release()
	<-done
	n.reader().want(1, "k", "v")
}

// alarmHandler counts errors.
type alarmHandler struct{ n *atomic.Int64 }

func (h alarmHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h alarmHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.n.Add(1)
	}
	return nil
}
func (h alarmHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h alarmHandler) WithGroup(string) slog.Handler      { return h }
