package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

const roomy = 200_001 // bytes of a value that has chunks

// places counts those that are taken.
func (n *node) places() (live int) {
	for _, c := range n.mem.Slabs.Stats().Classes {
		live += c.Live
	}
	return live
}

// roomFor is a room with a value in it.
func (n *node) roomFor(key, value string, ttl time.Duration) *Room {
	n.t.Helper()
	r := NewRoom(n.Store, len(key), len(value), ttl)
	if r == nil {
		n.t.Fatal("no room")
	}
	if copy(r.Bytes(), value) != len(r.Bytes()) {
		n.t.Fatalf("a room of %d bytes", len(r.Bytes()))
	}
	return r
}

// needRooms skips a test where no values are placed.
func needRooms(t *testing.T) {
	if !layout.MayPlace {
		t.Skip("the race detector would take what a device writes for a race")
	}
}

// TestRoom: a put takes the place of its room over, whatever becomes of it the place is given back
// once, and not before, and the value is what readers get.
func TestRoom(t *testing.T) {
	needRooms(t)
	n := open(t, cacheConfig(64<<20))
	ctx, r := context.Background(), n.reader()
	big := func(c byte) string {
		b := make([]byte, roomy)
		for i := range b {
			b[i] = c + byte(i%251)
		}
		return string(b)
	}
	put := func(room *Room, w Write) *Write {
		t.Helper()
		w.Room = room
		if w.Value == nil {
			w.Value = room.Bytes()
		}
		if err := n.Do(ctx, &w); err != nil && w.Err == nil {
			t.Fatal(err)
		}
		room.Release()
		room.Release()
		return &w
	}
	for i, c := range []struct {
		what   string
		value  string
		ttl    time.Duration
		op     Op
		key    string // in the room's name, if it is another
		places int    // taken behind it
		failed error
	}{
		{what: "first", value: big(1), places: 1},
		{what: "over another", value: big(2), places: 1},
		{what: "with a time to live", value: big(3), ttl: time.Hour, places: 1},
		{what: "refused", value: big(4), op: Op{If: CondAbsent}, places: 1, failed: ErrCondition},
		{what: "for a shorter key", value: big(5), key: "x", places: 1},
		{what: "of another life", value: big(6), ttl: time.Hour, op: Op{TTL: 0}, places: 1},
	} {
		key := "key"
		if c.key == "" {
			c.key = key
		}
		room := n.roomFor(c.key, c.value, c.ttl)
		if got := n.places(); got != min(i, 1)+1 {
			t.Errorf("%s: %d places are taken while the room is", c.what, got)
		}
		op := c.op
		op.Key = []byte(key)
		if c.what != "of another life" {
			op.TTL = c.ttl
		}
		w := put(room, Write{Op: op})
		if !errors.Is(w.Err, c.failed) {
			t.Errorf("%s: %v", c.what, w.Err)
		}
		if got := n.places(); got != c.places {
			t.Errorf("%s: %d places are taken behind it", c.what, got)
		}
		if c.failed == nil {
			r.want(0, key, c.value)
			n.want(0, key, c.value)
		}
	}
	// A value from elsewhere, and a room that is never used.
	w := put(n.roomFor("key", big(7), 0), Write{Op: Op{Key: []byte("key"), Value: []byte(big(8))}})
	if w.Err != nil {
		t.Error(w.Err)
	}
	r.want(0, "key", big(8))
	n.roomFor("key", big(9), 0).Release()
	if !n.del(0, "key") || n.places() != 0 {
		t.Errorf("%d places are taken at the end", n.places())
	}
}

// TestRoomOfARetry: a write that is refused for now keeps its room, and takes it when it is submitted
// again; a copy of a write that was done gives its own back.
func TestRoomOfARetry(t *testing.T) {
	needRooms(t)
	c := cacheConfig(64 << 20)
	c.InflightBytes = roomy + 100
	n := open(t, c)
	value := string(make([]byte, roomy))
	held, release := make(chan struct{}), make(chan struct{})
	n.submit(&Write{Op: Op{Key: []byte("s"), Value: []byte("v")}, Done: func(*Write) { close(held); <-release }})
	<-held // nothing is published until release
	n.submit(&Write{Op: Op{Key: []byte("a"), Value: []byte(value)}, Done: func(*Write) {}})
	room := n.roomFor("b", value, 0)
	done := make(chan struct{})
	w := &Write{Op: Op{Key: []byte("b"), Value: room.Bytes(), ID: RequestID{Client: [16]byte{1}, Seq: 1}}, Room: room, Done: func(*Write) { close(done) }}
	if err := n.Submit(w); !errors.Is(err, ErrOverloaded) {
		t.Fatalf("Submit: %v", err)
	}
	close(release)
	n.submit(w)
	<-done
	room.Release()
	n.reader().want(0, "b", value)
	again := n.roomFor("b", value, 0)
	before := n.places()
	if err := n.Do(t.Context(), &Write{Op: Op{Key: []byte("b"), Value: again.Bytes(), ID: w.ID}, Room: again}); err != nil {
		t.Fatal(err)
	}
	again.Release()
	if n.places() != before-1 {
		t.Errorf("%d places, %d before", n.places(), before)
	}
	n.reader().want(0, "b", value)
}

// TestNoRoom: there is none where bytes have to stay as they are for a log, for small values, and in a
// store that closes, which waits for those that are out.
func TestNoRoom(t *testing.T) {
	needRooms(t)
	if NewRoom(open(t, testConfig(nil)).Store, 1, roomy, 0) != nil {
		t.Error("a store with a log gave room")
	}
	n := open(t, cacheConfig(64<<20))
	for _, lens := range [][2]int{{1, layout.ChunkSize}, {0, roomy}, {layout.MaxKeyLen + 1, roomy}, {1, layout.MaxValueLen + 1}, {1, -1}} {
		if NewRoom(n.Store, lens[0], lens[1], 0) != nil {
			t.Errorf("room for a key of %d and a value of %d bytes", lens[0], lens[1])
		}
	}
	room := n.roomFor("k", string(make([]byte, roomy)), 0)
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	waitFor(t, "the store to close", func() bool {
		r := NewRoom(n.Store, 1, roomy, 0)
		if r != nil {
			r.Release()
		}
		return r == nil
	})
	if n.heap.regions() == 0 {
		t.Error("the memory of a room is gone")
	}
	select {
	case <-closed:
		t.Error("the store was closed while a room was out")
	default:
	}
	room.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
