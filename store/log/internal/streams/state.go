package streams

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// The body of a FactState:
//
//	  0        8        16       24
//	+--------+--------+--------+
//	| term   | vote   | commit |
//	| 64     | 64     | 64     |
//	+--------+--------+--------+
const (
	offStateTerm   = 0
	offStateVote   = offStateTerm + 8
	offStateCommit = offStateVote + 8
	stateLen       = offStateCommit + 8
)

// A State is what the replica of a stream has promised and knows: its term, its vote in that
// term, and how far the entries are committed. It is one fact, so that no crash leaves a
// vote without its term.
type State struct {
	Term   uint64
	Vote   uint64 // the replica that was voted for in Term; 0: none
	Commit uint64 // entries up to this index are committed
}

// Body returns the body of the fact.
func (s State) Body() []byte {
	b := make([]byte, stateLen)
	binary.LittleEndian.PutUint64(b[offStateTerm:], s.Term)
	binary.LittleEndian.PutUint64(b[offStateVote:], s.Vote)
	binary.LittleEndian.PutUint64(b[offStateCommit:], s.Commit)
	return b
}

// parseState is the inverse of Body.
func parseState(b []byte) State {
	le := binary.LittleEndian
	return State{Term: le.Uint64(b[offStateTerm:]), Vote: le.Uint64(b[offStateVote:]), Commit: le.Uint64(b[offStateCommit:])}
}

// promise takes in a state. A term never falls, a vote does not change in its term, and
// what is committed stays so: a replica that broke one of these would elect two leaders of
// one term, or count as unknown what others rely on. It holds for what a replay finds as
// well, because the states of a stream stand in the log in their order.
func (h *shape) promise(r *format.Record) error {
	is, was := parseState(r.Body), State{}
	if h.state != nil {
		was = *h.state
	}
	switch {
	case is == State{}:
		return refused(ErrRecord, r, "an empty state")
	case is.Term < was.Term:
		return refused(ErrPromise, r, "term %d follows term %d", is.Term, was.Term)
	case is.Term == was.Term && was.Vote != 0 && is.Vote != was.Vote:
		return refused(ErrPromise, r, "a vote for %d in term %d, in which it was for %d", is.Vote, is.Term, was.Vote)
	case is.Commit < was.Commit:
		return refused(ErrPromise, r, "committed to %d follows committed to %d", is.Commit, was.Commit)
	}
	h.state = &is
	return nil
}

// State returns what the replica of a stream has promised; ok: it has promised something.
func (t *Table) State(id uint64) (state State, ok bool) {
	if s := t.look(id); s.state != nil {
		return *s.state, true
	}
	return State{}, false
}
