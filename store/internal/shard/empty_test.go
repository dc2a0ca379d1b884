package shard

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestEmpty: of a shard that was emptied memory has nothing, and what was on its way into memory does not come in: neither a key that the
// fill has read, nor one that a get has, nor a version to the place where it stood a moment ago.
func TestEmpty(t *testing.T) {
	r := newRig(t, true)
	for i := range 50 {
		f := r.order(base.Op{Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, i*10)})
		f.At = 1
		r.publish(f)
	}
	r.full = true
	r.publish(r.order(base.Op{Key: []byte("without memory"), Value: []byte("v")}))
	r.full = false
	v := r.Marks().Published
	r.Mu.Lock()
	it, ok := r.Resident(r.hash("k3"), []byte("k3"))
	r.Mu.Unlock()
	if !ok {
		t.Fatal("k3 is not there")
	}
	place, version := it.Slot.Place(), it.Version
	if !r.Unfill() {
		t.Error("readers may have believed a miss")
	}
	if r.Unfill() {
		t.Error("they are waited for twice")
	}
	r.pass()

	r.BeginChunk(false, false)
	r.Mu.Lock()
	probe := r.BeginPromotion(r.hash("p"), []byte("p"))
	r.Mu.Unlock()
	newest := v + 1000
	content := r.Content()
	why := errors.New("another state")
	Empty(r.Shard, newest, why)

	ix, items := r.Counts()
	if dirty, _ := r.DirtyCounts(); items != 0 || ix.Keys != 0 || ix.Slotless != 0 || dirty != 0 || r.mem.Slabs.Stats().Live != 0 {
		t.Errorf("%d items, %+v, %d dirty, %d bytes live", items, ix, dirty, r.mem.Slabs.Stats().Live)
	}
	if m := r.Marks(); m.Published != newest || m.Ordered != newest {
		t.Errorf("%+v", m)
	}
	if !r.TooSoon(place, version) {
		t.Error("a version may come back to its place at once")
	}
	link := func(key string) FillFate {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return r.LinkFilled(time.Now(), r.hash(key), []byte(key), v, 0, 0, nil)
	}
	if fate := link("k3"); fate != FillVoid {
		t.Errorf("what the fill has read before: %v", fate)
	}
	r.EndChunk()
	r.Mu.Lock()
	promoted := r.LinkPromoted(probe, v, 0, 0, nil)
	r.DropProbe(probe)
	r.Mu.Unlock()
	if promoted {
		t.Error("what a get has read before came into memory")
	}
	if _, ok := r.SetFull(content); ok {
		t.Error("the content of before is said to be whole")
	}
	r.Mu.Lock()
	_, where := r.Locate(r.hash("k3"), []byte("k3"))
	r.Mu.Unlock()
	if where != InPebble {
		t.Errorf("a miss says %v before the shard is filled again", where)
	}
	// It goes on behind the newest version of the state.
	r.next = newest + 1
	r.publish(r.order(base.Op{Key: []byte("k3"), Value: []byte("new")}))
	r.BeginChunk(false, false)
	if fate := link("k3"); fate != FillDropped {
		t.Errorf("a key that was written since: %v", fate)
	}
	r.EndChunk()
	if shown, ok := r.SetFull(r.Content()); shown || !ok {
		t.Errorf("shown %v, ok %v", shown, ok)
	}
}

// TestEmptyTellsJudges: an operation that is judged by what the disk said before learns that it is not so.
func TestEmptyTellsJudges(t *testing.T) {
	r := newRig(t, true)
	r.Mu.Lock()
	r.AddSlotless(r.hash("k"))
	r.Mu.Unlock()
	why := errors.New("another state")
	r.during = func() {
		r.Unfill()
		Empty(r.Shard, r.next+10, why)
	}
	if _, err := r.LockJudged(r.hash("k"), []byte("k"), r.ask); !errors.Is(err, why) {
		t.Errorf("judged by what is no more: %v", err)
		if err == nil {
			r.Mu.Unlock()
		}
	}
	if n := r.Probing(); n != 0 {
		t.Errorf("%d probes are left", n)
	}
}

// TestBegin: a shard that becomes a group's numbers behind what its base has of the group, however high the store's own versions were, and
// what is newer than its base leaves by the group's numbers.
func TestBegin(t *testing.T) {
	r := newRig(t, true)
	r.publish(r.order(base.Op{Key: []byte("k"), Kind: base.OpDelete}))
	r.Mu.Lock()
	r.Dirty.Leave(r.published, nil)
	own := r.published
	r.Mu.Unlock()
	newest := own / 2
	Begin(r.Shard, newest)
	if m := r.Marks(); m.Ordered != newest || m.Published != newest || m.Durable != newest || !r.Agreed.Load() {
		t.Errorf("the store's own versions are at %v, the base has the group up to %v, and the shard begins with %+v", own, newest, m)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if c := r.Dirty.Clean(); c != newest {
		t.Errorf("its base is said to have all up to %v, and has %v", c, newest)
	}
}

// TestAwait: a shard that awaits something newer takes nothing of the base into memory, and is not said to be whole; and what the fill has passed over meanwhile is
// no content that could be.
func TestAwait(t *testing.T) {
	r := newRig(t, true)
	content, v := r.Content(), r.Marks().Published
	link := func(key string) FillFate {
		r.BeginChunk(false, false)
		defer r.EndChunk()
		r.Mu.Lock()
		defer r.Mu.Unlock()
		return r.LinkFilled(time.Now(), r.hash(key), []byte(key), v, 0, 0, nil)
	}
	promote := func(key string) bool {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		p := r.BeginPromotion(r.hash(key), []byte(key))
		defer r.DropProbe(p)
		place, class, err := r.mem.Slabs.Alloc(layout.ItemSize(len(key), 0, false))
		if err != nil {
			t.Fatal(err)
		}
		mem := r.mem.Table.Bytes(place, layout.ClassSize(class))
		r.mem.WritePending(mem, place, layout.Item{Version: v, Key: []byte(key)})
		return r.LinkPromoted(p, v, place, class, mem)
	}
	r.Await()
	if fate := link("k"); fate != FillDropped {
		t.Errorf("the fill brings a key in: %v", fate)
	}
	if promote("k") {
		t.Error("a get brings a key in")
	}
	if _, ok := r.SetFull(content); ok {
		t.Error("it is said to be whole")
	}
	r.Reached()
	if _, ok := r.SetFull(content); ok {
		t.Error("what the fill has come to meanwhile is said to be whole")
	}
	if fate := link("k"); fate != FillCounted {
		t.Errorf("the fill brings nothing in: %v", fate)
	}
	if _, ok := r.SetFull(r.Content()); !ok {
		t.Error("it is not whole behind that")
	}
	if !promote("other") {
		t.Error("a get brings nothing in")
	}
}

// TestEnd: a shard that has no replica any more is as a new one that is withheld: nothing of it is in memory or newer than the base, who waited goes on, and it takes the
// writes of the store itself.
func TestEnd(t *testing.T) {
	r := newRig(t, true)
	Begin(r.Shard, layout.NumberedVersion(5, 0))
	for i := range 50 {
		f := r.order(base.Op{Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, i*10)})
		f.At = 1
		r.publish(f)
	}
	flies := r.order(base.Op{Key: []byte("flies"), Value: []byte("v")})
	waits := make(chan error, 1)
	go func() { waits <- r.WaitPublished(t.Context(), flies.Version) }()
	if !r.Withhold() || !r.Withheld() {
		t.Error("readers may have believed a miss, or it is not withheld")
	}
	r.pass()
	r.Clear()
	content, none := r.Content(), layout.MakeVersion(1, 1000)
	End(r.Shard, none, errors.New("no replica"))
	if err := <-waits; err != nil {
		t.Error(err)
	}
	ix, items := r.Counts()
	dirty, _ := r.DirtyCounts()
	if m := r.Marks(); items != 0 || ix.Keys != 0 || ix.Slotless != 0 || dirty != 0 || m.Flying != 0 || m.Ordered != none || m.Published != none || r.Agreed.Load() {
		t.Errorf("%d items, %+v, %d dirty, %+v", items, ix, dirty, m)
	}
	if _, ok := r.SetFull(content); ok {
		t.Error("the content of before is said to be whole")
	}
	if shown, ok := r.SetFull(r.Content()); !shown || !ok || r.Index.Filled() {
		t.Errorf("withheld, and its misses are believed: %v, %v", shown, ok)
	}
	r.next = none + 1
	f := r.order(base.Op{Key: []byte("own"), Value: []byte("v")})
	f.At = 2
	r.publish(f)
	if dirty, _ := r.DirtyCounts(); dirty != 1 {
		t.Errorf("%d writes are newer than the base", dirty)
	}
}
