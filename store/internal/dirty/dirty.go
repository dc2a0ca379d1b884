// Package dirty has the keys of one shard that are newer than the base: what was published
// since the position that the base, which is changed by checkpoints alone, has reached.
//
// # What stands where
//
// Every write that is published adds a record to the newest chunk. A record never changes
// and never moves, so a view of a moment is no copy: it is the chunks of that moment and
// how many records the newest of them had.
//
//	         oldest                                   newest
//	chunks   +-----------+   +-----------+   +--------------+
//	         | xxx.......|   |...........|   |.......       |   x: left, the base has it
//	         +-----------+   +-----------+   +--------------+   .: dirty
//	              ^ clean mark                     ^ heads: the newest record of each key
//
//	runs     [  group of 16 chunks  ] [chunk] [chunk] [256][256] tail   each in key order
//
// Find goes through a table of heads, in which each key has its newest record and no
// other (table). A scan goes through runs, each of which sorts itself once, when somebody
// scans, and merges them (run, View).
//
// # The rules, and what happens without them
//
//   - The table has the newest record of a key alone. If older ones stayed in its chains, a
//     counter that is raised a million times would slow all keys of its bucket.
//   - Among runs that have a key, the newest run decides, and what it says is told only if it
//     is above the clean mark. If the mark were asked first, an older record could never be
//     told instead, since versions rise; but a run that is shared by views with different
//     marks could not be kept.
//   - Nothing that a view reads is written again: the writer fills what lies behind the
//     lengths that the view knows, and changes a list by making a new one. Otherwise a scan
//     would need the shard's lock for as long as it takes.
package dirty

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Set has the keys of one shard that are newer than the base. Its zero value is empty.
// The shard's lock guards it; a View that it gave needs no lock.
type Set struct {
	clean  layout.Version // the base has all up to here
	newest layout.Version // of the records; rises
	store
	table
	runs []*run // of all records but the tail, oldest first; never changed in place

	// The tail of the last view is that of the next one, too, if nothing is noted in between.
	tail    *run
	tailOf  *chunk
	tailEnd int // records of the chunk
}

// An Entry is what is known of the newest write of a key.
type Entry struct {
	Version layout.Version
	Gone    bool         // the key was deleted
	At      log.Position // of its record in the log: there its value is
	Part    uint32       // which effect of the record
}

// Note notes a write that was published. It copies the key. Versions rise from call to
// call, but effects of one record may share theirs. A write that the base has already,
// which a replay may bring, is not dirty and is not noted.
func (s *Set) Note(h layout.Hash, key []byte, e Entry) {
	switch {
	case len(key) < 1 || len(key) > layout.MaxKeyLen:
		panic(fmt.Sprintf("dirty: a key of %d bytes, 1 to %d are possible: check keys where they enter", len(key), layout.MaxKeyLen))
	case e.Version <= s.clean:
		return
	case e.Version < s.newest:
		panic(fmt.Sprintf("dirty: version %v noted behind %v: note writes in the order in which they are published", e.Version, s.newest))
	}
	s.newest = e.Version
	if s.full() {
		s.finish()
		s.addChunk()
	}
	s.link(&s.store, s.add(key, e), mix(h), key)
	if c := s.current(); len(c.records)%step == 0 {
		s.runs = append(s.runs, newRun(c.piece(len(c.records)-step)))
	}
}

// finish puts one run in the place of those of the newest chunk's steps, and one run in the
// place of those of the newest chunks, when there are groupOf of them.
func (s *Set) finish() {
	c := s.current()
	if c == nil {
		return
	}
	steps := len(c.records) / step
	s.replace(steps, newRun(c.piece(0)))
	alone := 0
	for alone < len(s.runs) && len(s.runs[len(s.runs)-1-alone].pieces) == 1 {
		alone++
	}
	if alone < groupOf {
		return
	}
	pieces := make([]piece, 0, groupOf)
	for _, r := range s.runs[len(s.runs)-groupOf:] {
		pieces = append(pieces, r.pieces[0])
	}
	s.replace(groupOf, newRun(pieces...))
}

// replace puts one run in the place of the last n. It makes a new list, because views have
// the old one.
func (s *Set) replace(n int, by *run) {
	list := make([]*run, 0, len(s.runs)-n+1+2*groupOf)
	s.runs = append(append(list, s.runs[:len(s.runs)-n]...), by)
}

// Find returns the newest write of a key, if it is newer than the base.
func (s *Set) Find(h layout.Hash, key []byte) (Entry, bool) {
	n := s.find(&s.store, mix(h), key)
	if n == none {
		return Entry{}, false
	}
	c, i := s.at(n)
	return c.records[i].entry(), true
}

// AheadSteps is how many steps of Ahead there are.
const AheadSteps = 3

// Ahead has memory fetched that a Note of a key of that hash will read, in the steps in which one
// thing leads to the next: the head of the chain; the newest record there and its link; the key of
// that record. A chain has mostly one record, so what stands behind the first is left out. A step
// waits for what the one before it has asked for, so many keys take each step together.
// It changes nothing.
func (s *Set) Ahead(h layout.Hash, step int) {
	if s.buckets == 0 {
		return
	}
	head := s.head(mix(h))
	if step == 0 {
		prefetch.Line(head)
		return
	}
	if *head == 0 {
		return
	}
	c, i := s.at(*head - 1)
	if step == 1 {
		prefetch.Line(&c.links[i])
		prefetch.Line(&c.records[i])
		return
	}
	p := piece{blocks: c.blocks}
	prefetch.Line(&p.keyOf(&c.records[i])[0])
}

// Clean is the mark up to which the base has everything.
func (s *Set) Clean() layout.Version { return s.clean }

// Counts returns how many records there are, of which several can be of one key, and the
// memory that they take, with the order of each run as if everything had been scanned.
func (s *Set) Counts() (records int, bytes int64) {
	return s.records, s.bytes + s.memory()
}
