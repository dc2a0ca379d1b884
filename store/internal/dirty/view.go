package dirty

import (
	"bytes"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A View is what was dirty at one moment. It is read without a lock, by any number of
// goroutines, beside what happens to the Set; it keeps the memory of what has left since.
type View struct {
	runs  []*run // oldest first
	tail  *run   // behind them, or nil
	clean layout.Version
}

// View returns what is dirty now. It takes the same time however much that is.
func (s *Set) View() View {
	v := View{runs: s.runs[:len(s.runs):len(s.runs)], clean: s.clean}
	c := s.current()
	if c == nil || len(c.records)%step == 0 {
		return v
	}
	from := len(c.records) / step * step
	if s.tail == nil || s.tailOf != c || s.tailEnd != len(c.records) {
		s.tail, s.tailOf, s.tailEnd = newRun(c.piece(from)), c, len(c.records)
	}
	v.tail = s.tail
	return v
}

// Keys returns an iterator of the keys from lower on and below upper, before the first of
// them. An empty lower begins with the first key of all; a nil upper ends with the last.
// The first call sorts what nobody has sorted before.
func (v View) Keys(lower, upper []byte) *Iterator {
	it := &Iterator{clean: v.clean, all: make([]cursor, 0, len(v.runs)+1)}
	for _, r := range v.runs {
		it.open(r, lower, upper)
	}
	if v.tail != nil {
		it.open(v.tail, lower, upper)
	}
	it.rewind(nil)
	return it
}

// An Iterator goes through keys in order. One goroutine uses it at a time. It needs no
// Close: it holds nothing but memory.
type Iterator struct {
	clean layout.Version
	all   []cursor  // one of each run that has keys within the bounds, oldest first
	heap  []*cursor // those that are not at their end; the first has the next key
	key   []byte
	entry Entry
}

// A cursor is the next key of one run.
type cursor struct {
	run      *run
	age      int // its number among all: the higher, the newer
	from, to int // what is within the bounds, in the run's order
	next     int
	rec      *record
	key      []byte
}

func (it *Iterator) open(r *run, lower, upper []byte) {
	c := cursor{run: r, age: len(it.all), from: r.search(lower), to: len(r.sorted())}
	if upper != nil {
		c.to = r.search(upper)
	}
	if c.from < c.to {
		it.all = append(it.all, c)
	}
}

// rewind stands before the first key that is not below one; nil: before the first of all.
func (it *Iterator) rewind(key []byte) {
	it.heap = it.heap[:0]
	for i := range it.all {
		c := &it.all[i]
		c.next = c.from
		if key != nil {
			c.next = min(max(c.from, c.run.search(key)), c.to)
		}
		if c.load() {
			it.heap = append(it.heap, c)
		}
	}
	for i := len(it.heap)/2 - 1; i >= 0; i-- {
		it.sink(i)
	}
	it.key, it.entry = nil, Entry{}
}

// load reads the record of the cursor, unless it is at its end.
func (c *cursor) load() bool {
	if c.next >= c.to {
		return false
	}
	c.rec, c.key = c.run.at(c.run.order[c.next])
	return true
}

// Seek goes to the first key that is not below one, forward or back, within the bounds. It
// reports whether there is one.
func (it *Iterator) Seek(key []byte) bool {
	if key == nil {
		key = []byte{}
	}
	it.rewind(key)
	return it.Next()
}

// Next goes to the next key and reports whether there is one. It looks at one record of each
// run at most, and, all calls together, at those of one chunk that are below the clean mark.
func (it *Iterator) Next() bool {
	for len(it.heap) > 0 {
		newest := it.heap[0]
		rec, key := newest.rec, newest.key
		for len(it.heap) > 0 && bytes.Equal(it.heap[0].key, key) {
			it.advance()
		}
		if rec.version > it.clean {
			it.key, it.entry = key, rec.entry()
			return true
		}
	}
	it.key, it.entry = nil, Entry{}
	return false
}

// Key is the key that the iterator is at: nil before the first and behind the last. It may be
// kept, and not changed.
func (it *Iterator) Key() []byte { return it.key }

// Entry is the newest write of the key at the view's moment.
func (it *Iterator) Entry() Entry { return it.entry }

// advance moves the first cursor on.
func (it *Iterator) advance() {
	c := it.heap[0]
	c.next++
	if !c.load() {
		last := len(it.heap) - 1
		it.heap[0], it.heap[last] = it.heap[last], nil
		it.heap = it.heap[:last]
	}
	it.sink(0)
}

// sink restores the heap below one of its places.
func (it *Iterator) sink(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(it.heap); child++ {
			if it.heap[child].before(it.heap[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		it.heap[i], it.heap[first] = it.heap[first], it.heap[i]
		i = first
	}
}

// before orders cursors by key, and the newer run first.
func (c *cursor) before(other *cursor) bool {
	if d := bytes.Compare(c.key, other.key); d != 0 {
		return d < 0
	}
	return c.age > other.age
}
