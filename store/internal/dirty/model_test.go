package dirty

import (
	"maps"
	"math/bits"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"pgregory.net/rapid"
)

// A scene is a set, its model, and the views that were taken, with what they must show.
type scene struct {
	*rapid.T
	set   Set
	model *keep
	last  layout.Version
	views []struct {
		view View
		want map[string]Entry
	}
	hash func([]byte) layout.Hash
	keys *rapid.Generator[[]byte]
}

// TestSetIsItsModel: whatever is noted and left, the set finds, counts and lists what a model
// says that keeps everything; and each view stays what it was when it was taken.
func TestSetIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &scene{T: t, model: newKeep(), hash: hashOf}
		if rapid.Bool().Draw(t, "collide") {
			s.hash = func(key []byte) layout.Hash { return layout.Hash{Lo: uint64(len(key) & 1)} }
		}
		s.keys = rapid.OneOf(
			rapid.SliceOfN(rapid.ByteRange('a', 'b'), 1, 4), // many of them twice, and many that begin as others
			rapid.SliceOfN(rapid.Byte(), 1, 40),
			rapid.Map(rapid.IntRange(1, layout.MaxKeyLen), func(n int) []byte { return make([]byte, n) }),
		)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				s.leave()
			case 1:
				s.burst()
			case 2:
				s.take()
			case 3:
				s.scan()
			default:
				s.note(s.keys.Draw(t, "key"))
			}
			s.look()
		}
		s.leave()
		s.look()
		for len(s.views) > 0 {
			s.scan()
			s.views = s.views[1:]
		}
	})
}

func (s *scene) note(key []byte) {
	s.last += layout.Version(rapid.IntRange(0, 3).Draw(s.T, "rise")) // 0: of one record with the last
	s.last = max(s.last, s.model.clean+1)
	s.put(key, s.last)
}

// put notes a version.
func (s *scene) put(key []byte, v layout.Version) {
	s.set.Note(s.hash(key), key, entryOf(v))
	s.model.notes[string(key)] = append(s.model.notes[string(key)], entryOf(v))
}

// burst notes so many that steps and chunks are filled.
func (s *scene) burst() {
	n := rapid.IntRange(1, 700).Draw(s.T, "burst")
	base := rapid.IntRange(0, 2000).Draw(s.T, "from")
	for i := range n {
		s.last++
		x := bits.Reverse16(uint16(base + i)) // out of order
		s.put([]byte{'a', byte(x >> 8), byte(x)}, s.last)
	}
}

// leave raises the mark, in steps or at once, to something between the old one and the newest.
func (s *scene) leave() {
	to := layout.Version(rapid.Uint64Range(uint64(s.model.clean), uint64(s.last)).Draw(s.T, "clean"))
	want := map[string]int{}
	for key, list := range s.model.notes {
		for _, e := range list {
			if e.Version > s.model.clean && e.Version <= to {
				want[key]++
			}
		}
	}
	versions := func(from, to layout.Version) int {
		set := map[layout.Version]bool{}
		for _, list := range s.model.notes {
			for _, e := range list {
				if e.Version > from && e.Version <= to {
					set[e.Version] = true
				}
			}
		}
		return len(set)
	}
	most := 1 << 30
	if rapid.Bool().Draw(s.T, "stepwise") {
		most = rapid.IntRange(1, 100).Draw(s.T, "most")
	}
	got := map[string]int{}
	for s.set.Clean() < to {
		mark := s.set.Step(to, most)
		if mark <= s.set.Clean() || mark > to {
			s.Fatalf("a step from %v to %v ends at %v", s.set.Clean(), to, mark)
		}
		calls, before := 0, s.set.Clean()
		s.set.Leave(mark, func(key []byte) { got[string(key)]++; calls++ })
		if calls > most && versions(before, mark) > 1 {
			s.Fatalf("%d records left in a step of %d", calls, most)
		}
	}
	if !maps.Equal(got, want) {
		s.Fatalf("%v left, want %v", got, want)
	}
	s.model.clean = to
}

func (s *scene) take() {
	s.views = append(s.views, struct {
		view View
		want map[string]Entry
	}{s.set.View(), s.model.dirty()})
}

// scan goes through one view, whole or in part.
func (s *scene) scan() {
	if len(s.views) == 0 {
		return
	}
	v := s.views[rapid.IntRange(0, len(s.views)-1).Draw(s.T, "view")]
	if rapid.Bool().Draw(s.T, "whole") {
		if d := same(all(v.view.Keys(nil, nil)), within(v.want, nil, nil)); d != "" {
			s.Fatal(d)
		}
		return
	}
	lower, upper := s.keys.Draw(s.T, "lower"), s.keys.Draw(s.T, "upper")
	it := v.view.Keys(lower, upper)
	want := within(v.want, lower, upper)
	if d := same(all(it), want); d != "" {
		s.Fatalf("from %q to %q: %s", lower, upper, d)
	}
	for range 3 { // and from anywhere, back and forth
		key := s.keys.Draw(s.T, "seek")
		want := within(v.want, []byte(max(string(lower), string(key))), upper)
		if ok := it.Seek(key); ok != (len(want) > 0) {
			s.Fatalf("Seek %q from %q to %q says %t, %d keys are there", key, lower, upper, ok, len(want))
		}
		if len(want) == 0 {
			if it.Key() != nil || it.Next() {
				s.Fatalf("Seek %q found nothing, and then %q", key, it.Key())
			}
			continue
		}
		got := append([]pair{{string(it.Key()), it.Entry()}}, all(it)...)
		if d := same(got, want); d != "" {
			s.Fatalf("Seek %q from %q to %q: %s", key, lower, upper, d)
		}
	}
}

// look compares what the set finds and counts.
func (s *scene) look() {
	want, records := s.model.dirty(), 0
	for key, list := range s.model.notes {
		e, ok := s.set.Find(s.hash([]byte(key)), []byte(key))
		if w, dirty := want[key]; ok != dirty || e != w {
			s.Fatalf("Find %q says %+v %t, want %+v %t", key, e, ok, w, dirty)
		}
		for _, e := range list {
			if e.Version > s.model.clean {
				records++
			}
		}
	}
	if s.set.Clean() != s.model.clean {
		s.Fatalf("clean mark %v, want %v", s.set.Clean(), s.model.clean)
	}
	if n, b := s.set.Counts(); n != records || (b == 0) != (records == 0) {
		s.Fatalf("%d records of %d bytes, want %d", n, b, records)
	}
	if int(s.set.keys) != len(want) {
		s.Fatalf("the table has %d keys, want %d", s.set.keys, len(want))
	}
	if key := s.keys.Draw(s.T, "other"); want[string(key)].Version == 0 {
		if e, ok := s.set.Find(s.hash(key), key); ok {
			s.Fatalf("Find %q, which is not dirty, says %+v", key, e)
		}
	}
}
