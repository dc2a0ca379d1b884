package streams

import (
	"container/heap"
	"slices"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A stay is the first and the last write of a stream in a segment that may still be needed.
// A stream has one per segment, and not one per write: a segment goes as a whole, so nobody
// asks for more.
type stay struct{ first, last format.Position }

// stays notes a write.
func (s *stream) stays(at format.Position) {
	if at < s.released {
		return
	}
	if n := len(s.writes); n > 0 && s.writes[n-1].last.Segment() == at.Segment() {
		s.writes[n-1].last = at
		return
	}
	s.writes = append(s.writes, stay{at, at})
}

// Release says that no write of a stream that stands before a position is needed.
func (t *Table) Release(id uint64, upTo format.Position) {
	s := t.find(id)
	if s == nil || s.dropped || upTo <= s.released {
		return
	}
	s.released = upTo
	n := 0
	for n < len(s.writes) && s.writes[n].last < upTo {
		n++
	}
	s.writes = slices.Delete(s.writes, 0, n)
	if len(s.writes) > 0 {
		// The first one that is needed stands here or behind, in the same segment.
		s.writes[0].first = max(s.writes[0].first, upTo)
	}
	t.need.weigh(s)
}

// needs is a heap of the streams that need something, the one that needs the oldest on top.
// What a stream needs changes rarely: with its first write or entry after it needed nothing,
// with a release, a trim, or an entry that takes the place of all. Only then the heap is
// touched, at a cost that grows with the logarithm of the streams. Oldest looks at the top.
type needs []*stream

// Len, Less, Swap, Push and Pop are what container/heap asks for.
func (n needs) Len() int           { return len(n) }
func (n needs) Less(i, j int) bool { return n[i].oldest < n[j].oldest }
func (n needs) Swap(i, j int) {
	n[i], n[j] = n[j], n[i]
	n[i].at, n[j].at = i, j
}
func (n *needs) Push(x any) {
	s := x.(*stream)
	s.at = len(*n)
	*n = append(*n, s)
}
func (n *needs) Pop() any {
	last := len(*n) - 1
	s := (*n)[last]
	(*n)[last], *n, s.at = nil, (*n)[:last], -1
	return s
}

// weigh puts a stream where it belongs after it may have changed.
func (n *needs) weigh(s *stream) {
	var oldest format.Position
	if s.last > s.base {
		oldest, _ = s.entries.get(s.base + 1) // entries with a higher index stand behind it
	}
	if len(s.writes) > 0 && (oldest == 0 || s.writes[0].first < oldest) {
		oldest = s.writes[0].first
	}
	if oldest == s.oldest {
		return
	}
	was := s.oldest
	s.oldest = oldest
	switch {
	case was == 0:
		heap.Push(n, s)
	case oldest == 0:
		heap.Remove(n, s.at)
	default:
		heap.Fix(n, s.at)
	}
}

// Oldest returns the oldest position that a stream still needs, and which stream it is. The
// position is 0 if no stream needs anything. It looks at one place, however many streams
// there are.
func (t *Table) Oldest() (at format.Position, stream uint64) {
	if len(t.need) == 0 {
		return 0, 0
	}
	return t.need[0].oldest, t.need[0].id
}
