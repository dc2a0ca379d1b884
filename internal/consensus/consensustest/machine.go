package consensustest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A Machine notes which writes it has applied, and where. Its publishing takes its time. It
// implements consensus.Machine.
type Machine struct {
	w    *World
	node *Node
	g    consensus.GroupID
	id   consensus.ReplicaID

	mu    sync.Mutex
	state contents // published
	role  role
	slow  time.Duration // each Apply takes up to so long
	held  chan struct{} // not nil: Apply waits for it
	fails error         // of Apply
	wait  map[string]chan uint64
}

// Contents are what a machine has, and what a snapshot of it is.
type contents struct {
	consensus.State
	Writes map[string]uint64 // where each was applied; a second copy does not count
}

type role struct {
	term   uint64
	leads  bool
	leader consensus.ReplicaID
}

func (m *Machine) encode() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := json.Marshal(m.state)
	if err != nil {
		panic(err)
	}
	return b
}

func decode(b []byte) (c contents, err error) {
	err = json.Unmarshal(b, &c)
	if c.Writes == nil {
		c.Writes = map[string]uint64{}
	}
	return c, err
}

// State implements consensus.Machine, like all down to Adopt.
func (m *Machine) State() (consensus.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.State, nil
}

// Apply publishes entries one by one.
func (m *Machine) Apply(entries []consensus.Entry) error {
	for _, e := range entries {
		m.mu.Lock()
		slow, held, fails := m.slow, m.held, m.fails
		m.mu.Unlock()
		if fails != nil {
			return fails
		}
		if held != nil {
			<-held
		}
		if slow > 0 {
			m.w.sleep(slow)
		}
		if e.Config != nil {
			if s, err := m.node.engine.Status(m.g); err == nil && s.Config.Index >= e.Index {
				m.w.judge.mu.Lock()
				m.w.judge.wrong("R12: replica %d acts on the change of entry %d while it is applied", m.id, e.Index)
				m.w.judge.mu.Unlock()
			}
		}
		m.w.judge.applies(m.g, m.id, e)
		m.mu.Lock()
		if e.Index != m.state.Applied+1 {
			m.mu.Unlock()
			return fmt.Errorf("entry %d follows entry %d", e.Index, m.state.Applied)
		}
		m.state.Applied, m.state.Term = e.Index, e.Term
		switch e.Kind {
		case consensus.Change:
			m.state.Config = *e.Config
		case consensus.Write:
			m.publishLocked(name(e.Data), e.Index)
		}
		m.mu.Unlock()
	}
	m.node.applied(m)
	return nil
}

// name is what a write is called: its data up to the first zero byte. What follows makes it
// large.
func name(data []byte) string {
	b, _, _ := bytes.Cut(data, []byte{0})
	return string(b)
}

func (m *Machine) publishLocked(write string, index uint64) {
	if at, ok := m.state.Writes[write]; ok {
		index = at // a second copy
	}
	m.state.Writes[write] = index
	if c := m.wait[write]; c != nil {
		delete(m.wait, write)
		if m.role.leads { // who leads acknowledges
			m.w.judge.acks(m.g, write, index)
			c <- index
		}
		close(c)
	}
}

// Durable raises the word.
func (m *Machine) Durable(term uint64) { m.w.judge.word(m.g, m.id, term) }

// Leads proposes a marker, as a store does before it orders.
func (m *Machine) Leads(term uint64) {
	m.w.judge.leads(m.g, m.id, term)
	m.mu.Lock()
	m.role = role{term, true, m.id}
	m.mu.Unlock()
	if err := m.node.engine.Propose(m.g, term, fmt.Appendf(nil, "marker %d", term)); err != nil {
		m.w.judge.mu.Lock()
		m.w.judge.wrong("replica %d was told to lead in term %d and cannot propose: %v", m.id, term, err)
		m.w.judge.mu.Unlock()
	}
}

// Follows gives up those who wait.
func (m *Machine) Follows(term uint64, leader consensus.ReplicaID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.role = role{term, false, leader}
	for write, c := range m.wait {
		delete(m.wait, write)
		close(c)
	}
}

// Snapshot is the state as it is.
func (m *Machine) Snapshot(context.Context) (consensus.Snapshot, error) {
	b := m.encode()
	c, err := decode(b)
	return &snapshot{Reader: bytes.NewReader(b), state: c.State}, err
}

// Receive reads a state.
func (m *Machine) Receive(_ context.Context, s consensus.State, r io.Reader) (consensus.Received, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	c, err := decode(b)
	if err == nil && c.Applied != s.Applied {
		err = fmt.Errorf("a snapshot up to entry %d has the state up to %d", s.Applied, c.Applied)
	}
	return &snapshot{state: c.State, contents: c}, err
}

// Adopt makes a state the machine's, durably.
func (m *Machine) Adopt(r consensus.Received) error {
	c := r.(*snapshot).contents
	m.mu.Lock()
	if c.Applied <= m.state.Applied {
		defer m.mu.Unlock()
		return fmt.Errorf("a snapshot up to entry %d, and entry %d is applied", c.Applied, m.state.Applied)
	}
	m.state = c
	slow := m.slow
	m.mu.Unlock()
	m.node.save(m)
	if slow > 0 {
		m.w.sleep(10 * slow) // here a crash comes between the machine and the log
	}
	return nil
}

// put proposes a write, and returns the index at which it was acknowledged; false: it was
// not, and may be there or not.
func (m *Machine) put(ctx context.Context, data string) (index uint64, ok bool) {
	write := name([]byte(data))
	c := make(chan uint64, 1)
	m.mu.Lock()
	r := m.role
	if r.leads {
		m.wait[write] = c
	}
	m.mu.Unlock()
	if !r.leads {
		return 0, false
	}
	if err := m.node.engine.Propose(m.g, r.term, []byte(data)); err != nil {
		m.mu.Lock()
		delete(m.wait, write)
		m.mu.Unlock()
		return 0, false
	}
	select {
	case index, ok = <-c:
		return index, ok
	case <-ctx.Done():
		return 0, false
	}
}

// A snapshot is a machine's state on its way.
type snapshot struct {
	io.Reader
	state    consensus.State
	contents contents
}

func (s *snapshot) State() consensus.State { return s.state }
func (s *snapshot) Close() error           { return nil }
