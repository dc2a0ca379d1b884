package streams

import (
	"math"
	"slices"
	"sort"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// A span says which entries a stream has, and their terms:
//
//	        floor       base   base+1                      last
//	----------+----------+------+---------------------------+
//	 trimmed  |  may be  | term | runs: entries of one term |
//	  (told)  |  there   | known| one after the other       |
//
// Everything up to floor is trimmed, and was told so. Base is the index before the first
// entry. It is above floor when the stream began there and nobody has told why.
//
// A span is copied to see what records would make of it. So no method writes into the
// array of runs below its length, nor behind it when it was made shorter.
type span struct {
	floor     uint64
	floorTerm uint64
	known     bool   // floorTerm is the term at floor
	told      uint64 // the trim point that a fact told last; floor may be above it
	toldTerm  uint64
	base      uint64
	last      uint64 // base if there is no entry
	runs      []run
}

// A run is entries of one term, up to the next run.
type run struct{ from, term uint64 }

// copy returns a span that can be changed while this one stays.
func (s *span) copy() span {
	c := *s
	c.runs = slices.Clip(c.runs)
	return c
}

// term is the term of entry i, or of what was trimmed last, if it is known.
func (s *span) term(i uint64) (uint64, bool) {
	switch {
	case i == s.base && i == 0:
		return 0, true // the term before the first of all entries
	case i == s.base:
		return s.floorTerm, s.known && s.floor == i
	case i < s.base || i > s.last:
		return 0, false
	}
	k := sort.Search(len(s.runs), func(k int) bool { return s.runs[k].from > i })
	return s.runs[k-1].term, true
}

// put makes i the last entry. Strict refuses what is below the first entry, which a replay
// must take. It changes nothing if it returns an error.
func (s *span) put(r *format.Record, strict bool) error {
	i, empty := r.Index, s.base == s.last
	switch {
	case i == 0 || i == math.MaxUint64:
		return refused(ErrRecord, r, "no such index")
	case i <= s.floor:
		return refused(ErrTrimmed, r, "everything up to %d is trimmed", s.floor)
	case strict && i <= s.base:
		return refused(ErrTrimmed, r, "the first is %d", s.base+1)
	case i > s.last+1 && (!empty || strict && s.last != s.told):
		// A replay finds entries that were trimmed and finds no word of it, so those
		// that follow must not leave a gap.
		return refused(ErrGap, r, "the last is %d; tell first where it was trimmed", s.last)
	}
	before := min(i-1, s.last)
	if t, ok := s.term(before); ok && r.Term < t {
		return refused(ErrGap, r, "entry %d is of term %d", before, t)
	}
	if i <= s.base || i > s.last+1 {
		s.begin(i - 1)
	}
	k := len(s.runs)
	for k > 0 && s.runs[k-1].from >= i {
		k--
	}
	if k < len(s.runs) {
		s.runs = s.runs[:k:k]
	}
	if k == 0 || s.runs[k-1].term != r.Term {
		s.runs = append(s.runs, run{i, r.Term})
	}
	s.last = i
	return nil
}

// begin leaves no entry, and lets the next one be any behind base.
func (s *span) begin(base uint64) { s.base, s.last, s.runs = base, base, nil }

// trim forgets the entries up to i, or up to the last, and keeps the term if it is known.
func (s *span) trim(i uint64) {
	if i = min(i, s.last); i <= s.floor {
		return
	}
	s.floorTerm, s.known = s.term(i)
	s.raise(i)
}

// tell takes in a trim point and the term at it. Anew says that all entries go, those
// behind it too; a strict look refuses what would be told too late. It changes nothing if it
// returns an error.
func (s *span) tell(r *format.Record, to run, anew, strict bool) error {
	i := to.from
	again := i == s.told && to.term == s.toldTerm && !anew
	switch {
	case i == 0 || i == math.MaxUint64:
		return refused(ErrRecord, r, "no such index: %d", i)
	case i < s.floor && (anew || strict && !again):
		// It would do nothing here, but something in a replay that finds no word of the
		// later trim. What was told before is told again when its segment goes.
		return refused(ErrTrimmed, r, "everything up to %d is trimmed, not only to %d", s.floor, i)
	case i == s.floor && s.known && to.term != s.floorTerm:
		return refused(ErrGap, r, "entry %d was of term %d, not %d", i, s.floorTerm, to.term)
	}
	if !anew {
		have, ok := s.term(i)
		next, followed := s.term(i + 1)
		if ok && have != to.term || i == s.base && followed && next < to.term {
			// A replay may begin behind entry i and find those behind it alone. So
			// that they go must be said.
			return refused(ErrGap, r, "the entries are not those behind entry %d of term %d; if they shall go, begin anew", i, to.term)
		}
	}
	if i >= s.told {
		s.told, s.toldTerm = i, to.term
	}
	if i < s.floor {
		return nil
	}
	if anew {
		s.begin(i)
	}
	s.floorTerm, s.known = to.term, true
	s.raise(i)
	return nil
}

// raise sets the floor, which rises, and forgets the runs below it.
func (s *span) raise(i uint64) {
	s.floor = i
	switch {
	case i >= s.last:
		s.begin(i)
	case i > s.base:
		k := sort.Search(len(s.runs), func(k int) bool { return s.runs[k].from > i+1 })
		rest := s.runs[k-1:]
		if k-1 > len(rest) {
			rest = slices.Clone(rest) // give back what is in front
		}
		s.runs, s.base = rest, i
	}
}
