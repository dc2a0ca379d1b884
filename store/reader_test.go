package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/reads"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A reader is a client's one-sided half without a fabric: it reads registered
// memory by aligned atomic words, as a NIC does, and believes layout.Lookup.
// It knows nothing of the store but its regions.
type reader struct {
	n       *node
	view    layout.View
	dir     *layout.Dir
	look    layout.Lookup
	loc     map[string]layout.Loc // the location cache
	maxRead uint32
	// mid, if set, runs in each READ behind its first word.
	mid func()

	found, absent, asked uint64
	reasons              [layout.NumReasons]uint64
}

func (n *node) reader() *reader {
	r := &reader{n: n, view: n.View(), loc: make(map[string]layout.Loc), maxRead: 1 << 20}
	if err := r.view.Check(); err != nil {
		n.t.Fatal(err)
	}
	r.dir = layout.NewDir(&r.view)
	return r
}

// refresh takes the newest view, as a client does when the beat says so.
func (r *reader) refresh() {
	if v := r.n.ViewVersion(); v != r.view.Version {
		r.view = r.n.View()
	}
}

// read copies server memory word by word.
func (r *reader) read(p layout.Place, n int) []byte {
	mem := r.n.mem.Table.Bytes(p, n)
	if mem == nil {
		panic(fmt.Sprintf("READ of %d bytes at %v, which is nowhere", n, p))
	}
	b := make([]byte, n)
	for off := 0; off < n; off += 8 {
		binary.LittleEndian.PutUint64(b[off:], layout.LoadWord(mem, off))
		if off == 0 && r.mid != nil {
			r.mid()
		}
	}
	return b
}

// get is one get. ask: the answer has to come by SEND.
func (r *reader) get(shard int, key string) (v layout.Version, value string, found, ask bool) {
	r.refresh()
	r.look.Start(&r.view, r.dir, uint16(shard), []byte(key), r.loc[key], r.maxRead)
	for {
		switch r.look.Step() {
		case layout.ActionRead:
			for i := range r.look.Reads {
				rd := &r.look.Reads[i]
				rd.Buf = r.read(rd.Place, int(rd.Len))
			}
		case layout.ActionFound:
			it, loc := r.look.Found()
			r.loc[key] = loc
			r.found++
			val, ok := r.value(&it, loc)
			if !ok {
				return 0, "", false, true
			}
			return it.Version, val, true, false
		case layout.ActionAbsent:
			r.absent++
			delete(r.loc, key)
			return 0, "", false, false
		case layout.ActionAsk:
			r.asked++
			r.reasons[r.look.Reason]++
			return 0, "", false, true
		}
	}
}

// value puts a chunked value together.
func (r *reader) value(it *layout.ItemView, loc layout.Loc) (string, bool) {
	if it.Chunks == 0 {
		return string(it.Value()), true
	}
	var out []byte
	for i := range it.Chunks {
		off, n := it.ChunkRange(i)
		at := it.ValueOffset() + off
		b := r.read(loc.Place+layout.Place(at/8), (n+7)&^7)[:n]
		if !it.VerifyChunk(i, b) {
			return "", false
		}
		out = append(out, b...)
	}
	return string(out), true
}

// want is a get that must be answered, and rightly, without asking.
func (r *reader) want(shard int, key, value string) {
	r.n.t.Helper()
	_, got, found, ask := r.get(shard, key)
	if ask || !found || got != value {
		r.n.t.Fatalf("one-sided get of %q: %q, found %v, ask %v (%v); want %q", key, clip(got), found, ask, r.look.Reason, clip(value))
	}
}

func (r *reader) wantAbsent(shard int, key string) {
	r.n.t.Helper()
	if _, got, found, ask := r.get(shard, key); ask || found {
		r.n.t.Fatalf("one-sided get of %q: %q, found %v, ask %v (%v); want nothing", key, clip(got), found, ask, r.look.Reason)
	}
}

func (r *reader) wantAsk(shard int, key string) {
	r.n.t.Helper()
	if _, got, found, ask := r.get(shard, key); !ask {
		r.n.t.Fatalf("one-sided get of %q: %q, found %v; want to ask", key, clip(got), found)
	}
}

// getAny is what a client does: one-sided, and by SEND where that says ask.
func (r *reader) getAny(ctx context.Context, shard int, key string) (v layout.Version, value string, found bool, err error) {
	v, value, found, ask := r.get(shard, key)
	if !ask {
		return v, value, found, nil
	}
	got, err := r.n.Get(ctx, uint16(shard), []byte(key), nil)
	if err == ErrNotFound {
		return 0, "", false, nil
	}
	return got.Version, string(got.Data), err == nil, err
}

func TestOneSided(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	r.wantAbsent(0, "nothing")
	for i, size := range []int{0, 1, 100, 5000, layout.ChunkSize, layout.ChunkSize + 1, 1 << 20} {
		key := fmt.Sprintf("key-%d", i)
		n.put(i%4, key, pattern(size, "one"))
		r.want(i%4, key, pattern(size, "one"))
		n.put(i%4, key, pattern(size, "two"))
		r.want(i%4, key, pattern(size, "two")) // the cached place is dead
		n.del(i%4, key)
		r.wantAbsent(i%4, key)
	}
}

// TestUnfilledAsks: after a start no miss is believed before the shard is
// filled and a lease has passed.
func TestUnfilledAsks(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	n.put(1, "old", "value")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fs))
	waitFor(t, "fill of the one key", func() bool { return n.Stats().FillKeys == 1 && n.Stats().ShardsFilled == 3 })
	r := n.reader()
	r.wantAsk(1, "other")
	r.wantAbsent(2, "other") // nothing was filled in there, so nothing waits
	n.fill()
	r.want(1, "old", "value")
	r.wantAbsent(1, "other")
}

// TestHold keeps answers in memory for readers.
func TestHold(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	ctx := context.Background()
	big := pattern(3*layout.ChunkSize, "big")
	v := n.put(0, "big", big)
	r := n.reader()
	r.want(0, "big", big)
	held, err := n.Hold(ctx, 0, []byte("big"))
	if err != nil || held.Version != v || held.ValLen != len(big) || held.KeyLen != 3 {
		t.Fatalf("Hold = %+v, %v", held, err)
	}
	readHeld := func() (layout.ItemView, string, error) {
		it, err := layout.ParseItem(r.read(held.Place, held.Size), n.Incarnation(), held.Place)
		if err != nil {
			return it, "", err
		}
		val, _ := r.value(&it, layout.Loc{Place: held.Place})
		return it, val, nil
	}
	check := func(state layout.State) {
		t.Helper()
		if it, got, err := readHeld(); err != nil || it.State != state || it.Version != v || got != big {
			t.Fatalf("held item: state %v, version %v, value %s, %v", it.State, it.Version, clip(got), err)
		}
	}
	check(layout.Live)
	// Overwritten and deleted, it stays for him who holds it, and for no one
	// else, not even at a remembered place.
	for i := range 10 {
		n.put(0, "big", pattern(3*layout.ChunkSize, fmt.Sprint(i)))
	}
	check(layout.Held)
	r.want(0, "big", pattern(3*layout.ChunkSize, "9"))
	n.del(0, "big")
	check(layout.Held)
	r.wantAbsent(0, "big")
	if n.Stats().HeldBytes == 0 {
		t.Error("nothing counted as held")
	}
	held.Release()
	held.Release()
	if it, _, err := readHeld(); err == nil && it.State != layout.Dead {
		t.Errorf("released item has state %v", it.State)
	}
	if st := n.Stats(); st.HeldBytes != 0 {
		t.Errorf("%d bytes held after Release", st.HeldBytes)
	}
	if _, err := n.Hold(ctx, 0, []byte("big")); err != ErrNotFound {
		t.Errorf("Hold of a deleted key: %v", err)
	}

	// A lease ends it too.
	n.put(0, "k", "v")
	if held, err = n.Hold(ctx, 0, []byte("k")); err != nil {
		t.Fatal(err)
	}
	n.lease()
	if st := n.Stats(); st.HeldBytes != 0 {
		t.Errorf("%d bytes held a lease later", st.HeldBytes)
	}
	held.Release()
	r.want(0, "k", "v")
}

// TestHoldAside: where registered memory has no room the answer is kept beside it.
// Small answers pass large ones, and all of them are bounded.
func TestHoldAside(t *testing.T) {
	c := testConfig(memFS())
	mem := c.Memory.(*heapMemory)
	c.MemoryLimit, c.IndexRegionSize = 4<<20, 1<<20
	mem.limit = 1 << 20 // the index: no item has a place
	c.HoldBytes = 16 << 20
	n := open(t, c)
	n.fill()
	ctx := context.Background()
	large, small := pattern(6<<20, "large"), pattern(100<<10, "small")
	v := n.put(0, "large", large)
	n.put(0, "small", small)
	if _, err := n.Hold(ctx, 0, []byte("large")); !errors.Is(err, ErrOverloaded) {
		t.Fatalf("Hold: %v", err)
	}
	read := func(h *Held, want string) {
		t.Helper()
		mem := make([]byte, h.Size)
		for off := 0; off < h.Size; off += 4096 {
			if err := n.ReadHeld(h, off, mem[off:min(off+4096, h.Size)]); err != nil {
				t.Fatal(err)
			}
		}
		it, err := layout.ParseItem(mem, n.Incarnation(), h.Place)
		if err != nil || it.State != layout.Held || it.Version != h.Version || it.ValLen != len(want) {
			t.Fatalf("state %v, version %v, %d bytes, %v", it.State, it.Version, it.ValLen, err)
		}
		for i := range it.Chunks {
			off, size := it.ChunkRange(i)
			chunk := mem[it.ValueOffset()+off:][:size]
			if !it.VerifyChunk(i, chunk) || string(chunk) != want[off:off+size] {
				t.Fatalf("chunk %d does not verify", i)
			}
		}
	}
	var held []*Held
	for range 2 {
		h, err := n.HoldAside(ctx, 0, []byte("large"))
		if err != nil || h.Place != layout.Nowhere || h.Version != v {
			t.Fatalf("%+v, %v", h, err)
		}
		read(h, large)
		held = append(held, h)
	}
	if _, err := n.HoldAside(ctx, 0, []byte("large")); !errors.Is(err, ErrOverloaded) {
		t.Errorf("a third of 6 MiB in 16: %v", err)
	}
	more := 0
	for ; ; more++ {
		h, err := n.HoldAside(ctx, 0, []byte("small"))
		if errors.Is(err, ErrOverloaded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		read(h, small)
		held = append(held, h)
	}
	if used, limit := n.HoldUse(); used <= limit || used > limit+limit/reads.SmallHoldExtra {
		t.Errorf("%d bytes held of %d, with %d small answers", used, limit, more)
	}
	for _, h := range held {
		h.Release()
		h.Release()
	}
	if st := n.Stats(); st.HeldBytes != 0 || st.HoldsAside != uint64(len(held)) {
		t.Errorf("%d bytes held, %d answers beside memory, want %d", st.HeldBytes, st.HoldsAside, len(held))
	}
	// A lease ends it, too.
	if _, err := n.HoldAside(ctx, 0, []byte("large")); err != nil {
		t.Fatal(err)
	}
	n.lease()
	if st := n.Stats(); st.HeldBytes != 0 {
		t.Errorf("%d bytes held a lease later", st.HeldBytes)
	}
}
