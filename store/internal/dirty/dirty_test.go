package dirty

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

const seed = 7

func hashOf(key []byte) layout.Hash { return layout.HashKey(seed, key) }

// entryOf is the entry of a version, so that a test that keeps the version knows the rest.
func entryOf(v layout.Version) Entry {
	return Entry{Version: v, Gone: v%3 == 0, At: log.Position(1<<32 | uint64(v)*8), Part: uint32(v % 5)}
}

// keep is the model: all notes, and the clean mark.
type keep struct {
	notes map[string][]Entry // oldest first
	clean layout.Version
}

func newKeep() *keep { return &keep{notes: map[string][]Entry{}} }

// dirty is what the model says is dirty.
func (k *keep) dirty() map[string]Entry {
	m := map[string]Entry{}
	for key, list := range k.notes {
		if e := list[len(list)-1]; e.Version > k.clean {
			m[key] = e
		}
	}
	return m
}

// A pair is a key and its entry.
type pair struct {
	key string
	Entry
}

// within lists the keys of a moment between bounds; upper nil: to the last.
func within(m map[string]Entry, lower, upper []byte) []pair {
	var list []pair
	for key, e := range m {
		if key >= string(lower) && (upper == nil || key < string(upper)) {
			list = append(list, pair{key, e})
		}
	}
	slices.SortFunc(list, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	return list
}

// all goes through an iterator to its end.
func all(it *Iterator) []pair {
	var list []pair
	for it.Next() {
		list = append(list, pair{string(it.Key()), it.Entry()})
	}
	return list
}

// same says how two lists differ, or nothing.
func same(got, want []pair) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("%d keys, want %d: %.20q is missing", len(got), len(want), want[i].key)
		case i >= len(want):
			return fmt.Sprintf("%d keys, want %d: %.20q is too many", len(got), len(want), got[i].key)
		case got[i] != want[i]:
			return fmt.Sprintf("key %d is %.20q %+v, want %.20q %+v", i, got[i].key, got[i].Entry, want[i].key, want[i].Entry)
		}
	}
	return ""
}

// TestEachMoment: after every step a view is taken, and at the end each of them is still what
// the model was at its moment, whatever was noted and left since.
func TestEachMoment(t *testing.T) {
	type moment struct {
		view View
		want map[string]Entry
	}
	n := rand.Uint64()
	t.Logf("seed %d", n)
	rnd := rand.New(rand.NewPCG(n, 0))
	var s Set
	k := newKeep()
	var moments []moment
	v := layout.Version(0)
	for range 3000 {
		key := fmt.Appendf(nil, "k%d", rnd.IntN(200))
		if rnd.IntN(20) == 0 {
			clean := k.clean + layout.Version(rnd.Uint64N(uint64(v-k.clean)+1))
			s.Leave(clean, nil)
			k.clean = clean
		}
		v += layout.Version(rnd.IntN(3))
		if v > k.clean {
			s.Note(hashOf(key), key, entryOf(v))
			k.notes[string(key)] = append(k.notes[string(key)], entryOf(v))
		}
		moments = append(moments, moment{s.View(), k.dirty()})
	}
	for i, m := range moments {
		if d := same(all(m.view.Keys(nil, nil)), within(m.want, nil, nil)); d != "" {
			t.Fatalf("moment %d: %s", i, d)
		}
	}
}

// TestManyChunks: the order is right over chunks, groups of them, steps and tails, while the
// oldest leave from within a chunk and from within a group.
func TestManyChunks(t *testing.T) {
	const total = 40 * perChunk / 2
	var s Set
	want := map[string]Entry{}
	var order []string
	note := func(from, to int) {
		for i := from; i < to; i++ {
			key := fmt.Appendf(nil, "user:%08d", i*7919%total)
			e := entryOf(layout.Version(i + 1))
			s.Note(hashOf(key), key, e)
			want[string(key)] = e
			order = append(order, string(key))
		}
	}
	note(0, total)
	groups := 0
	for _, r := range s.runs {
		if len(r.pieces) == groupOf {
			groups++
		}
	}
	if groups == 0 {
		t.Fatalf("%d records and no group", total)
	}
	check := func(what string) {
		t.Helper()
		if d := same(all(s.View().Keys(nil, nil)), within(want, nil, nil)); d != "" {
			t.Fatalf("%s: %s", what, d)
		}
	}
	check("all")
	for _, clean := range []int{1, 63, 64, 100, perChunk + 5, 3*perChunk + 17, 17 * perChunk, total - 300, total - 1, total} {
		old, before := s.View(), within(want, nil, nil)
		s.Leave(layout.Version(clean), nil)
		for _, key := range order[:clean] {
			if e, ok := want[key]; ok && e.Version <= s.Clean() {
				delete(want, key)
			}
		}
		check(fmt.Sprintf("clean %d", clean))
		if d := same(all(old.Keys(nil, nil)), before); d != "" {
			t.Fatalf("the view from before clean %d: %s", clean, d)
		}
		for i := clean % 7; i < total; i += 7 {
			key := fmt.Appendf(nil, "user:%08d", i)
			got, ok := s.Find(hashOf(key), key)
			if e, dirty := want[string(key)]; ok != dirty || got != e {
				t.Fatalf("clean %d: Find %s says %+v %t, want %+v %t", clean, key, got, ok, e, dirty)
			}
		}
	}
	note(total, total+1000)
	check("noted again")
}

// TestViewsKeepTheirRuns: each view has the keys of its moment and no others, though runs are
// put together meanwhile: steps into chunks, and chunks into groups.
func TestViewsKeepTheirRuns(t *testing.T) {
	var s Set
	var views []View
	const every, total = 3000, 20 * perChunk
	var b []byte
	for i := range total {
		if i%every == 0 {
			views = append(views, s.View())
		}
		b = numbered(b, i)
		s.Note(hashOf(b), b, entryOf(layout.Version(i+1)))
	}
	for i, v := range views {
		n, last := 0, layout.Version(0)
		for it := v.Keys(nil, nil); it.Next(); n++ {
			last = max(last, it.Entry().Version)
		}
		if n != i*every || last != layout.Version(n) {
			t.Errorf("a view of %d keys shows %d, the newest of version %v", i*every, n, last)
		}
	}
}

// TestOneKey: a million notes of one key are one key; they slow nobody in its bucket, and
// leave one by one.
func TestOneKey(t *testing.T) {
	const notes = 1_000_000
	var s Set
	key, other := []byte("counter"), []byte("other")
	h := hashOf(key)
	s.Note(h, other, entryOf(1)) // in the same bucket: its hash is the same
	for v := layout.Version(2); v <= notes; v++ {
		s.Note(h, key, entryOf(v))
		if v != notes && v != notes/1000 {
			continue
		}
		length := 0
		for next := *s.head(mix(h)); next != 0; length++ {
			c, i := s.at(next - 1)
			next = c.links[i].next
		}
		if length != 2 || s.keys != 2 {
			t.Fatalf("the chain of two keys has %d records after %d notes, and %d count as keys: a lookup would go through them all", length, v, s.keys)
		}
	}
	if e, ok := s.Find(h, other); !ok || e != entryOf(1) {
		t.Errorf("other: %+v %t", e, ok)
	}
	want := []pair{{"counter", entryOf(notes)}, {"other", entryOf(1)}}
	if d := same(all(s.View().Keys(nil, nil)), want); d != "" {
		t.Error(d)
	}
	called := 0
	s.Leave(notes-1, func(k []byte) { called++ })
	if n, _ := s.Counts(); n != 1 || called != notes-1 {
		t.Errorf("%d records are there, want 1; %d left, want %d", n, called, notes-1)
	}
	if d := same(all(s.View().Keys(nil, nil)), want[:1]); d != "" {
		t.Error(d)
	}
	if e, ok := s.Find(h, key); !ok || e != entryOf(notes) {
		t.Errorf("counter: %+v %t", e, ok)
	}
}

// TestCollisions: keys with one hash for all are told apart.
func TestCollisions(t *testing.T) {
	var s Set
	h := layout.Hash{Hi: 3, Lo: 5}
	const n = 3000
	for i := range n {
		key := fmt.Appendf(nil, "%d", i)
		s.Note(h, key, entryOf(layout.Version(i+1)))
	}
	s.Leave(n/2, nil)
	for i := range n {
		key := fmt.Appendf(nil, "%d", i)
		if e, ok := s.Find(h, key); ok != (i >= n/2) || ok && e != entryOf(layout.Version(i+1)) {
			t.Fatalf("key %d: %+v %t", i, e, ok)
		}
	}
	if _, ok := s.Find(h, []byte("none")); ok {
		t.Error("a key was found that was never noted")
	}
}

// TestKeysOfAllLengths: keys of 1 byte to 4 KiB, of which each begins as the next.
func TestKeysOfAllLengths(t *testing.T) {
	var s Set
	want := map[string]Entry{}
	long := bytes.Repeat([]byte{'a', 0}, layout.MaxKeyLen/2)
	v := layout.Version(0)
	for _, i := range rand.Perm(layout.MaxKeyLen) {
		v++
		key := long[:i+1]
		s.Note(hashOf(key), key, entryOf(v))
		want[string(key)] = entryOf(v)
	}
	if d := same(all(s.View().Keys(nil, nil)), within(want, nil, nil)); d != "" {
		t.Fatal(d)
	}
	lower, upper := long[:17], long[:2000]
	if d := same(all(s.View().Keys(lower, upper)), within(want, lower, upper)); d != "" {
		t.Fatal(d)
	}
	for i := range long {
		if e, ok := s.Find(hashOf(long[:i+1]), long[:i+1]); !ok || e != want[string(long[:i+1])] {
			t.Fatalf("key of %d bytes: %+v %t", i+1, e, ok)
		}
	}
}

// TestKeyIsCopied: the caller's key may change behind Note.
func TestKeyIsCopied(t *testing.T) {
	var s Set
	key := []byte("before")
	s.Note(hashOf(key), key, entryOf(1))
	copy(key, "behind")
	if _, ok := s.Find(hashOf([]byte("before")), []byte("before")); !ok {
		t.Error("the key changed with the caller's")
	}
}

// TestMisuse: what would make the answers wrong stops at once, and what the base has is left out.
func TestMisuse(t *testing.T) {
	for what, f := range map[string]func(*Set){
		"an empty key":     func(s *Set) { s.Note(layout.Hash{}, nil, entryOf(9)) },
		"a key of 4,097 B": func(s *Set) { s.Note(layout.Hash{}, make([]byte, layout.MaxKeyLen+1), entryOf(9)) },
		"an earlier write": func(s *Set) { s.Note(layout.Hash{}, []byte("k"), entryOf(7)) },
	} {
		var s Set
		s.Leave(3, nil)
		s.Note(layout.Hash{}, []byte("k"), entryOf(3))
		if n, _ := s.Counts(); n != 0 {
			t.Fatal("a write that the base has was noted")
		}
		s.Note(layout.Hash{}, []byte("k"), entryOf(8))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was accepted", what)
				}
			}()
			f(&s)
		}()
	}
}
