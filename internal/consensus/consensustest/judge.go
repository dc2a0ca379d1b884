package consensustest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A judge knows what all replicas of a group have done, and notes what must not happen.
type judge struct {
	mu     sync.Mutex
	errs   []error
	groups map[consensus.GroupID]*verdict
}

// A verdict is what is known of a group.
type verdict struct {
	log     map[uint64]record              // by index
	leaders map[uint64]consensus.ReplicaID // by term
	led     map[consensus.ReplicaID]uint64 // the highest term that a replica was told to lead
	words   map[consensus.ReplicaID]uint64 // the highest term that its machine was told
	acked   map[string]uint64              // writes, and the index of each
	top     uint64                         // the highest index that was acknowledged
	configs map[uint64]consensus.Config    // by the index of their entry
}

// A record is an entry as the first replica has applied it.
type record struct {
	term uint64
	kind consensus.Kind
	data string
	size int
}

func newJudge() *judge { return &judge{groups: map[consensus.GroupID]*verdict{}} }

// of returns what is known of a group. The caller holds mu.
func (j *judge) of(g consensus.GroupID) *verdict {
	v := j.groups[g]
	if v == nil {
		v = &verdict{
			log: map[uint64]record{}, leaders: map[uint64]consensus.ReplicaID{}, led: map[consensus.ReplicaID]uint64{},
			words: map[consensus.ReplicaID]uint64{}, acked: map[string]uint64{}, configs: map[uint64]consensus.Config{},
		}
		j.groups[g] = v
	}
	return v
}

// maxErrors bounds what is noted: the first ones say what went wrong.
const maxErrors = 8

func (j *judge) wrong(format string, args ...any) {
	if len(j.errs) < maxErrors {
		j.errs = append(j.errs, fmt.Errorf(format, args...))
	}
}

// Err is what must not have happened.
func (j *judge) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.errs...)
}

// expect takes out of the errors those that a scene has made.
func (j *judge) expect(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs = slices.DeleteFunc(j.errs, func(e error) bool { return errors.Is(e, err) })
}

// word notes that a machine was told of a term.
func (j *judge) word(g consensus.GroupID, id consensus.ReplicaID, term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	if term < v.words[id] {
		j.wrong("R10: the word of replica %d of group %d falls from %d to %d", id, g, v.words[id], term)
	}
	v.words[id] = max(v.words[id], term)
}

// wordOf returns the highest word that a replica ever had.
func (j *judge) wordOf(g consensus.GroupID, id consensus.ReplicaID) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of(g).words[id]
}

// leads notes an election.
func (j *judge) leads(g consensus.GroupID, id consensus.ReplicaID, term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	if other, ok := v.leaders[term]; ok && other != id {
		j.wrong("replicas %d and %d of group %d lead in term %d", other, id, g, term)
	}
	if v.words[id] < term {
		j.wrong("R10: replica %d of group %d leads in term %d, and its word is %d", id, g, term, v.words[id])
	}
	v.leaders[term] = id
	v.led[id] = max(v.led[id], term)
}

// applies notes that a replica is about to publish an entry.
func (j *judge) applies(g consensus.GroupID, id consensus.ReplicaID, e consensus.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	r := record{e.Term, e.Kind, name(e.Data), len(e.Data)}
	if e.Config != nil {
		r.data = fmt.Sprint(*e.Config)
		v.configs[e.Index] = *e.Config
	}
	was, ok := v.log[e.Index]
	switch {
	case ok && was != r:
		j.wrong("one log: replica %d of group %d applies %v at entry %d, another one has applied %v", id, g, r, e.Index, was)
	case !ok && e.Kind == consensus.Write && v.led[id] < e.Term:
		j.wrong("R7: replica %d of group %d publishes write %d of term %d before its leader has", id, g, e.Index, e.Term)
	}
	v.log[e.Index] = r
}

// acks notes that a write was acknowledged.
func (j *judge) acks(g consensus.GroupID, write string, index uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	v.acked[write] = index
	v.top = max(v.top, index)
}

// acknowledged returns the highest index that was acknowledged, and how many writes were.
func (j *judge) acknowledged(g consensus.GroupID) (top uint64, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	return v.top, len(v.acked)
}

// final holds the machines of a group, which are at one index, to each other and to what was
// acknowledged.
func (j *judge) final(g consensus.GroupID, all []*Machine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.of(g)
	var first []byte
	for i, m := range all {
		b := m.encode()
		if i == 0 {
			first = b
			for write, index := range v.acked {
				if at, ok := m.state.Writes[write]; !ok || at != index {
					j.wrong("write %q of group %d was acknowledged at entry %d, and is at entry %d of replica %d (0: nowhere)", write, g, index, at, m.id)
				}
			}
		} else if !bytes.Equal(first, b) {
			j.wrong("replicas %d and %d of group %d differ at the end: %.200s and %.200s", all[0].id, m.id, g, first, b)
		}
	}
}
