package driver

import (
	"encoding/binary"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Reads are those who wait until a replica has published what was committed when they
// asked (Barrier). One question is under way at a time; those who come meanwhile share the
// next one.
type reads struct {
	name  uint64         // of the question that was asked last
	asked bool           // it is under way
	age   int            // ticks since then
	mute  int            // ticks without an answer, while somebody waits for one
	fresh []chan<- error // they came since
	bound []chan<- error // they wait for the answer
	index []answer       // answered, and not published yet
	n     int            // of all three
}

// An answer is up to where entries were committed when some of the reads asked.
type answer struct {
	index uint64
	reads []chan<- error
}

// maxReads bounds the reads of a group that wait.
const maxReads = 1 << 16

// add takes in a read; false: too many wait.
func (r *reads) add(done chan<- error) bool {
	if r.n >= maxReads {
		return false
	}
	r.n++
	r.fresh = append(r.fresh, done)
	return true
}

// ask returns the name of a question to be asked now; nil: none.
func (r *reads) ask() []byte {
	if r.asked || len(r.fresh) == 0 {
		return nil
	}
	r.name++
	r.asked, r.age = true, 0
	r.bound, r.fresh = r.fresh, nil
	return binary.BigEndian.AppendUint64(nil, r.name)
}

// answer takes in up to where entries were committed.
func (r *reads) answer(name []byte, index uint64) {
	if !r.asked || len(name) != 8 || binary.BigEndian.Uint64(name) != r.name {
		return
	}
	r.index = append(r.index, answer{index, r.bound})
	r.asked, r.bound, r.mute = false, nil, 0
}

// questions is how often it is asked before those who wait are told that this replica does not lead. A leader that no majority
// hears is deposed sooner, by its own ticks; but those stand still while its disk hangs.
const questions = 5

// tick asks again if no answer has come for so many ticks: a message of it may be lost. At last it gives up.
func (r *reads) tick(patience int) {
	if len(r.fresh)+len(r.bound) == 0 {
		r.mute = 0
	} else if r.mute++; r.mute > questions*patience {
		for _, done := range append(r.bound, r.fresh...) {
			done <- consensus.ErrNotLeader
			r.n--
		}
		r.asked, r.bound, r.fresh, r.mute = false, nil, nil, 0
	}
	if !r.asked {
		return
	}
	if r.age++; r.age > patience {
		r.asked = false
		r.fresh, r.bound = append(r.bound, r.fresh...), nil
	}
}

// release lets those go on whose entries are published.
func (r *reads) release(published uint64) {
	k := 0
	for k < len(r.index) && r.index[k].index <= published {
		for _, done := range r.index[k].reads {
			done <- nil
			r.n--
		}
		k++
	}
	if k > 0 {
		r.index = append(r.index[:0], r.index[k:]...)
	}
}

// fail tells all that nothing comes.
func (r *reads) fail(err error) {
	all := append(r.fresh, r.bound...)
	for _, a := range r.index {
		all = append(all, a.reads...)
	}
	*r = reads{name: r.name}
	for _, done := range all {
		done <- err
	}
}
