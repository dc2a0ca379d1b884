package dirty

import "github.com/rdmakv/rdmakv/store/layout"

// Leave raises the clean mark: the base shows everything up to it. What is at or below it is
// forgotten, and left, if there is one, is called with the key of each record of that, oldest
// first; a key that was written several times comes several times. The key may be kept, and
// not changed. The memory of a chunk goes with its last record, or with the last view of it.
//
// Whoever asks Find under the same hold of the shard's lock finds the key either here or in
// the base. If the mark rose before the base shows the writes, a reader would be told an older
// value in between.
func (s *Set) Leave(clean layout.Version, left func(key []byte)) {
	if clean <= s.clean {
		return
	}
	s.clean = clean
	all := clean >= s.newest // then the table goes as a whole
	gone := 0
	for _, c := range s.chunks {
		p := c.piece(0)
		n := s.left
		for ; n < len(p.records) && p.records[n].version <= clean; n++ {
			if left != nil {
				left(p.keyOf(&p.records[n]))
			}
			if !all {
				s.unlink(&s.store, c.slot<<chunkBits|uint32(n))
			}
			s.records--
		}
		s.left = n
		if n < len(p.records) {
			break
		}
		gone++
		s.left = 0
	}
	if s.records == 0 {
		*s = Set{clean: clean, newest: s.newest}
		return
	}
	if gone > 0 {
		at := s.left
		s.drop(gone)
		s.left = at
		s.dropRuns(gone)
	}
}

// dropRuns takes the oldest chunks out of the runs, in a new list. A group that loses one is
// divided into chunks again: as a whole it would keep the memory of what has left.
func (s *Set) dropRuns(chunks int) {
	for i, r := range s.runs {
		if chunks < len(r.pieces) {
			list := make([]*run, 0, len(s.runs)-i+3*groupOf)
			if chunks == 0 {
				list = append(list, r)
			} else {
				for _, p := range r.pieces[chunks:] {
					list = append(list, newRun(p))
				}
			}
			s.runs = append(list, s.runs[i+1:]...)
			return
		}
		chunks -= len(r.pieces)
	}
	s.runs = nil
}

// Step returns a mark up to clean with which Leave forgets no more than most records, or those
// that share the oldest version. Whoever leaves in steps lets others have the shard's lock in
// between: a record takes about 0.1 µs, and left its own time.
func (s *Set) Step(clean layout.Version, most int) layout.Version {
	if s.records <= most {
		return clean
	}
	oldest := s.chunks[0].records[s.left].version
	at := s.left + max(most, 0)
	for _, c := range s.chunks {
		if at < len(c.records) {
			return min(clean, max(oldest, c.records[at].version-1))
		}
		at -= len(c.records)
	}
	return clean
}
