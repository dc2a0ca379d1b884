package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// A counter is a machine that counts the writes that it has applied.
type counter struct {
	mu    sync.Mutex
	cond  sync.Cond
	state consensus.State
	n     uint64
	term  uint64 // it leads in; 0: it follows
	taken int    // snapshots
}

func newCounter(s consensus.State) *counter {
	c := &counter{state: s}
	c.cond.L = &c.mu
	return c
}

func (c *counter) State() (consensus.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, nil
}

func (c *counter) Apply(entries []consensus.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		c.state.Applied, c.state.Term = e.Index, e.Term
		switch e.Kind {
		case consensus.Write:
			c.n++
		case consensus.Change:
			c.state.Config = *e.Config
		}
	}
	c.cond.Broadcast()
	return nil
}

func (c *counter) Durable(uint64) {}

func (c *counter) Leads(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = term
}

func (c *counter) Follows(uint64, consensus.ReplicaID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = 0
}

func (c *counter) leads() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

func (c *counter) count() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// A counter's snapshot is its count, and a lot of padding.
type counted struct {
	io.Reader
	state consensus.State
	n     uint64
}

func (s *counted) State() consensus.State { return s.state }
func (s *counted) Close() error           { return nil }

func (c *counter) Snapshot(context.Context) (consensus.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := binary.LittleEndian.AppendUint64(nil, c.n)
	return &counted{Reader: io.MultiReader(bytes.NewReader(b), bytes.NewReader(make([]byte, 3<<20))), state: c.state}, nil
}

func (c *counter) Receive(_ context.Context, s consensus.State, r io.Reader) (consensus.Received, error) {
	b, err := io.ReadAll(r)
	if err != nil || len(b) != 8+3<<20 {
		return nil, fmt.Errorf("%d bytes of a snapshot: %v", len(b), err)
	}
	return &counted{state: s, n: binary.LittleEndian.Uint64(b)}, nil
}

func (c *counter) Adopt(r consensus.Received) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.n = r.State(), r.(*counted).n
	c.taken++
	c.cond.Broadcast()
	return nil
}

// A member is a node with one replica.
type member struct {
	*site
	log *log.Log
	n   *driver.Node
	m   *counter
}

const aGroup = consensus.GroupID(3)

// join makes a node, whose endpoint is its driver, and starts its replica.
func (l *lan) join(t testing.TB, name string, id consensus.ReplicaID, dir log.Dir, s consensus.State) *member {
	t.Helper()
	m := &member{m: newCounter(s)}
	var err error
	m.log, err = log.Open(log.Config{Dir: dir, Create: true})
	if err == nil {
		err = m.log.Replay(func(*log.Record) error { return nil })
	}
	if err == nil {
		err = m.log.Start(m.log.Found().Epoch + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	link := &lateLink{}
	const shortly = 500 * time.Millisecond // who is away for longer gets a snapshot
	m.n = driver.New(driver.Config{Name: name, Log: m.log, Link: link, Absent: shortly, Fenced: func(_ consensus.GroupID, err error) { t.Errorf("%s is fenced: %v", name, err) }})
	m.site = l.open(t, name, func(c *Config) { c.Endpoint = m.n })
	link.set(m.Transport)
	if err := m.n.Create(aGroup, id, s); err != nil {
		t.Fatal(err)
	}
	if err := m.n.Start(context.Background(), aGroup, id, m.m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *member) leave(t testing.TB) {
	m.n.Close()
	m.site.end(t)
	m.log.Close(true)
}

// A lateLink is a link that is there when the transport is.
type lateLink struct {
	mu sync.Mutex
	to consensus.Link
}

func (l *lateLink) set(to consensus.Link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

func (l *lateLink) get() consensus.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to
}

func (l *lateLink) Send(node string, urgent bool, b []byte) {
	if to := l.get(); to != nil {
		to.Send(node, urgent, b)
	}
}

func (l *lateLink) Snapshot(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	return l.get().Snapshot(ctx, node, h, data)
}

func leaderOf(t testing.TB, all ...*member) *member {
	t.Helper()
	for range 2000 {
		for _, m := range all {
			if m.m.leads() > 0 {
				return m
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody leads for 10 s")
	return nil
}

// put writes n times, and waits until all members have applied it.
func put(t testing.TB, n int, all ...*member) {
	t.Helper()
	lead := leaderOf(t, all...)
	want := lead.m.count() + uint64(n)
	for range n {
		for lead.n.Propose(aGroup, lead.m.leads(), make([]byte, 100)) != nil {
			time.Sleep(time.Millisecond)
		}
	}
	limit := time.Now().Add(20 * time.Second)
	for _, m := range all {
		for m.m.count() < want {
			if time.Now().After(limit) {
				s, err := m.n.Status(aGroup)
				t.Fatalf("%s has applied %d writes of %d: %+v %v", m.name, m.m.count(), want, s, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestGroup is a group of three on the software RNIC: it elects, writes, loses its leader,
// and a replica that comes late gets the state by READs.
func TestGroup(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	c := consensus.Config{Index: 1}
	for i := range 3 {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: fmt.Sprint("n", i+1)})
	}
	base := consensus.State{Applied: 1, Term: 1, Config: c}
	var all []*member
	for _, v := range c.Voters[:2] {
		all = append(all, l.join(t, v.Node, v.ID, logtest.New(logtest.Options{}), base))
	}
	put(t, 200, all...)
	for _, m := range all { // what is behind is gone, so the third one needs a snapshot
		s, _ := m.m.State()
		if err := m.n.Trim(aGroup, s.Applied); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(700 * time.Millisecond) // nothing is kept for one that is not heard of
	late := l.join(t, "n3", 3, logtest.New(logtest.Options{}), base)
	all = append(all, late)
	put(t, 50, all...)
	if late.m.taken != 1 {
		t.Errorf("%d snapshots were adopted", late.m.taken)
	}
	lead := leaderOf(t, all...)
	var rest []*member
	for _, m := range all {
		if m != lead {
			rest = append(rest, m)
		}
	}
	began := time.Now()
	lead.leave(t)
	put(t, 50, rest...)
	t.Logf("the group went on after %v", time.Since(began))
	if err := leaderOf(t, rest...).n.Barrier(context.Background(), aGroup); err != nil {
		t.Errorf("a barrier: %v", err)
	}
	for _, m := range rest {
		m.leave(t)
	}
}

// BenchmarkGroup is one write of 128 bytes in a group of three over the software RNIC, until
// its leader has published it; the logs are files of the test's directory.
func BenchmarkGroup(b *testing.B) {
	l := &lan{sites: map[string]*site{}}
	c := consensus.Config{Index: 1}
	for i := range 3 {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: fmt.Sprint("n", i+1)})
	}
	var all []*member
	for _, v := range c.Voters {
		dir, err := log.CreateDir(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, l.join(b, v.Node, v.ID, dir, consensus.State{Applied: 1, Term: 1, Config: c}))
	}
	lead := leaderOf(b, all...)
	put(b, 10, all...)
	for b.Loop() {
		want := lead.m.count() + 1
		if err := lead.n.Propose(aGroup, lead.m.leads(), make([]byte, 128)); err != nil {
			b.Fatal(err)
		}
		lead.m.mu.Lock()
		for lead.m.n < want {
			lead.m.cond.Wait()
		}
		lead.m.mu.Unlock()
	}
	for _, m := range all {
		m.leave(b)
	}
}
