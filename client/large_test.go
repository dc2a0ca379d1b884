package client_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A second window is READ ahead only while there is room for it. A call that has one
// under way must not wait for room: many callers would hold all of it and wait
// for each other.
func TestWindowsAheadDoNotWait(t *testing.T) {
	f, _, c := newOneSided(t)
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // two windows
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5) })
	get := func() {
		t.Helper()
		if got, err := c.Get(t.Context(), fakeKey); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	get()
	s, taken, windows := rt(c).Only().Current(), 0, 0
	f.Mu.Lock()
	f.OnRead = func(addr uint64, dst []byte) {
		for s.ReadSpace.TryEnter(1) { // others: what is left is the room of this READ
			taken++
		}
		if len(dst) == base.WindowBytes {
			windows++
		}
		copy(dst, f.Mem[addr:])
	}
	f.Mu.Unlock()
	get()
	if taken == 0 || windows != 2 {
		t.Errorf("%d places taken by others, %d windows", taken, windows)
	}
	s.ReadSpace.Leave(taken)
	settled(t, c)
}

// The item of a large value may be any of those that were READ for slots with
// the key's fingerprint, not only the first.
func TestLargeValueBehindAnotherCandidate(t *testing.T) {
	f, _, c := newOneSided(t)
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<13) // 128 KiB
	f.Change(func(mem []byte) {
		f.PutItem(mem, oldSeg, placeB, fakeKey, value, 5)
		at := clienttest.SlotAt(oldSeg, fakeKey)
		copy(mem[at+8:at+16], mem[at:at+8]) // the second slot
		// The first one shows the same fingerprint and leads to another key.
		other := []byte("another key")
		size := layout.ItemSize(len(other), 3, false)
		layout.WriteItem(mem[placeA.Byte():placeA.Byte()+uint64(size)], f.Incarnation, placeA,
			layout.Item{Version: 6, Key: other, Value: []byte("two")}, layout.Pending)
		layout.SetState(mem[placeA.Byte():], 6, layout.Live)
		class, _ := layout.ClassFor(size)
		slot := layout.MakeSlot(layout.HashKey(42, fakeKey).Fingerprint(), class, placeA)
		binary.LittleEndian.PutUint64(mem[at:], uint64(slot))
	})
	got, err := c.Get(t.Context(), fakeKey)
	if err != nil || !bytes.Equal(got, value) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if k := c.Counters(); k.SendGets != 0 || k.Retries.Mismatch != 1 {
		t.Errorf("%+v", k)
	}
}
