package shard

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// logged orders and publishes an operation that has a record in the log. The disk of the rig
// does not have it: it is the base, and no checkpoint has come.
func (r *rig) logged(op base.Op) *flight.Flight {
	r.t.Helper()
	f := r.order(op)
	f.At = log.Position(f.Version)
	r.Publish(f, r.results)
	return f
}

// checkpoint is one that takes everything: the base has it first, then the sets let it go.
func (r *rig) checkpoint() {
	for r.Leave(r.next-1, 1) {
	}
}

func entry(v layout.Version, gone bool) dirty.Entry {
	return dirty.Entry{Version: v, Gone: gone, At: log.Position(v)}
}

// TestSetIsAsked: a read and a condition of a key without an item are told by the set that it
// is gone, whatever slots and counts say, and are sent on for one that is there.
func TestSetIsAsked(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "base"))
	r.evict("k")
	r.want("k", "", InPebble)
	r.logged(del("k"))
	r.want("k", "", Nowhere)
	r.disk["k"] = flight.KeyState{Exists: true, Version: 1} // the base's, which is old
	if state, sure := r.judge("k"); !sure || state.Exists {
		t.Errorf("a key that is gone by the set: %+v, sure %v", state, sure)
	}
	r.checkpoint()
	delete(r.disk, "k")
	r.want("k", "", InPebble) // the slot is left
	r.full = true             // a put without memory
	r.logged(put("l", "v"))
	r.want("l", "", InPebble)
	if _, sure := r.judge("l"); sure {
		t.Error("the set knows the expiry of a key that stands in the log")
	}
}

func (r *rig) judge(key string) (flight.KeyState, bool) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Judge(r.hash(key), []byte(key), false)
}

// TestSetOfAReplay: what a replay noted has no slot and no count, and a read finds it.
func TestSetOfAReplay(t *testing.T) {
	r := newRig(t, true)
	r.Dirty.Note(r.hash("k"), []byte("k"), entry(r.next-1, false))
	r.want("k", "", InPebble)
	if _, sure := r.judge("k"); sure {
		t.Error("a key that is in the log alone is surely absent")
	}
	r.want("l", "", Nowhere)
}

// link is LinkFilled of a key in a version.
func (r *rig) linkFilled(key, value string, v layout.Version) FillFate {
	place, class, mem := r.write(key, value, v)
	r.Mu.Lock()
	defer r.Mu.Unlock()
	fate := r.LinkFilled(time.Now(), r.hash(key), []byte(key), v, place, class, mem)
	if fate != FillLinked {
		layout.SetState(mem, v, layout.Dead)
		r.mem.Slabs.Free(place, class)
	}
	return fate
}

// TestFillAsksSet: of a key of the set the base says nothing that counts, unless it is what the
// set says; and the log says nothing of a key that has left.
func TestFillAsksSet(t *testing.T) {
	const old, newer = 2, 3
	for _, c := range []struct {
		name  string
		gone  bool
		log   bool // the fill reads the log
		leave bool // everything leaves in between
		read  layout.Version
		fate  FillFate
	}{
		{name: "older in the base", read: old, fate: FillDropped},
		{name: "deleted", gone: true, read: old, fate: FillDropped},
		{name: "the same in the base", read: newer, fate: FillLinked},
		{name: "in the log", log: true, read: newer, fate: FillLinked},
		{name: "older in the log", log: true, read: old, fate: FillDropped},
		{name: "left, and the snapshot is older", leave: true, read: old, fate: FillVoid},
		{name: "left, and read in the log", log: true, leave: true, read: newer, fate: FillDropped},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			e := entry(newer, c.gone)
			r.Dirty.Note(r.hash("k"), []byte("k"), e)
			if c.log {
				keys := []Logged{{r.hash("gone"), []byte("gone"), e}, {r.hash("k"), []byte("k"), e}}
				held := false
				left, release, err := BeginLogged(r.Shard, keys, true, func() (func(), error) {
					held = !r.Mu.TryLock()
					return func() {}, nil
				})
				if err != nil || release == nil || len(left) != 1 || string(left[0].Key) != "k" || !held {
					t.Fatalf("left %v, held under the lock %v, %v", left, held, err)
				}
			} else {
				r.BeginChunk(true, false)
			}
			if c.leave {
				r.checkpoint()
			}
			if fate := r.linkFilled("k", "v", c.read); fate != c.fate {
				t.Errorf("fate %d, want %d", fate, c.fate)
			}
			r.EndChunk()
		})
	}
}

// TestBeginLogged: nothing is held for keys that the set has in other versions, and an error
// of the hold begins nothing.
func TestBeginLogged(t *testing.T) {
	r := newRig(t, true)
	k := []Logged{{r.hash("k"), []byte("k"), entry(2, false)}}
	hold := func() (func(), error) { return nil, base.ErrClosed }
	if left, release, err := BeginLogged(r.Shard, append([]Logged(nil), k...), true, hold); len(left) != 0 || release != nil || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	r.Dirty.Note(r.hash("k"), []byte("k"), entry(2, false))
	if _, _, err := BeginLogged(r.Shard, k, true, hold); !errors.Is(err, base.ErrClosed) || r.fill.log {
		t.Errorf("%v, begun %v", err, r.fill.log)
	}
}

// TestTiredFill: a key that was void often enough is counted instead, once for each chunk, so
// that a fill ends whatever checkpoints do.
func TestTiredFill(t *testing.T) {
	r := newRig(t, true)
	for _, tired := range []bool{false, true} {
		r.BeginChunk(true, tired)
		r.Dirty.Note(r.hash("other"), []byte("other"), entry(r.next, false))
		r.next++
		r.checkpoint()
		want := FillVoid
		if tired {
			want = FillCounted
		}
		if fate := r.linkFilled("k", "v", 2); fate != want {
			t.Errorf("tired %v: fate %d, want %d", tired, fate, want)
		}
		if fate := r.linkFilled("l", "v", 2); fate != FillVoid {
			t.Errorf("tired %v: the second key has fate %d", tired, fate)
		}
		r.EndChunk()
	}
	r.want("k", "", InPebble)
}

// TestLeaveOfNothing: a clean mark that rises over writes of other shards voids no chunk.
func TestLeaveOfNothing(t *testing.T) {
	r := newRig(t, true)
	r.BeginChunk(true, false)
	r.Leave(r.next+100, 10)
	if fate := r.linkFilled("k", "v", 2); fate != FillLinked {
		t.Errorf("fate %d", fate)
	}
}

// TestPassAsksSet: the base's keys that are gone by the set are not met, and a key of the view is.
func TestPassAsksSet(t *testing.T) {
	for _, c := range []struct {
		name   string
		during func(r *rig, view []layout.Hash)
		swept  bool
		traces int // for the next pass
	}{
		{"gone", func(r *rig, _ []layout.Hash) { r.MeetBase([]Met{{r.hash("k"), []byte("k")}}) }, true, 0},
		{"gone, and it leaves", func(r *rig, _ []layout.Hash) {
			r.checkpoint()
			r.MeetBase([]Met{{r.hash("k"), []byte("k")}})
		}, false, 1},
		{"another key of the slot", func(r *rig, _ []layout.Hash) { r.MeetBase([]Met{{r.hash("k"), []byte("twin")}}) }, false, 0},
		{"a key of the view", func(r *rig, view []layout.Hash) { r.Meet(append(view, r.hash("k"))) }, false, 0},
		{"the view", func(r *rig, view []layout.Hash) { r.Meet(view) }, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, true)
			v := r.logged(put("k", "v")).Version
			r.evict("k")
			r.disk["k"] = flight.KeyState{Exists: true, Version: v} // what the log says to who asks
			r.logged(del("k"))
			r.logged(put("there", "v"))
			view, on := r.BeginPass(1)
			if !on {
				t.Fatal("no pass")
			}
			var keys []layout.Hash
			for it := view.Keys(nil, nil); it.Next(); {
				if !it.Entry().Gone {
					keys = append(keys, r.hash(string(it.Key())))
				}
			}
			if len(keys) != 1 || keys[0] != r.hash("there") {
				t.Errorf("the view has %d keys", len(keys))
			}
			c.during(r, keys)
			for r.ClearDoubted(1) {
			}
			r.EndPass()
			if ix, _ := r.Counts(); (ix.Pebble == 0) != c.swept || len(r.traces) != c.traces {
				t.Errorf("%d slots are left, %d traces", ix.Pebble, len(r.traces))
			}
		})
	}
}

// TestPassKeepsFlying: a pass begins while a put of a key is in flight, which then comes without
// memory: its key is in neither the view nor the base that the pass reads, and its slot stays.
func TestPassKeepsFlying(t *testing.T) {
	r := newRig(t, true)
	r.do(put("k", "first"))
	r.evict("k")
	r.logged(del("k"))
	if ix, _ := r.Counts(); ix.Pebble != 1 || len(r.traces) != 1 {
		t.Fatalf("%d slots, %d traces", ix.Pebble, len(r.traces))
	}
	r.full = true
	f := r.order(put("k", "second"))
	if _, on := r.BeginPass(1); !on {
		t.Fatal("no pass")
	}
	f.At = log.Position(f.Version)
	r.Publish(f, r.results)
	r.MeetBase(nil)
	r.Meet(nil)
	for r.ClearDoubted(1) {
	}
	r.EndPass()
	r.checkpoint()
	r.want("k", "", InPebble)
}

// TestRelist: an expiry is listed by a checkpoint, and not before.
func TestRelist(t *testing.T) {
	r := newRig(t, true)
	op := put("k", "v")
	op.TTL = 10 * time.Second
	now := uint64(r.wall.Unix())
	r.logged(op)
	if r.TakeDue(now+1000) || r.TakeRelisted() != clock.NeverDue {
		t.Error("listed before a checkpoint")
	}
	r.Relist(now + 10)
	r.Relist(now + 20)
	if r.TakeDue(now+9) || !r.TakeDue(now+10) {
		t.Error("due before its second, or not then")
	}
	if s := r.TakeRelisted(); s != now+10 || r.TakeRelisted() != clock.NeverDue {
		t.Errorf("listed from second %d on", s)
	}
}
