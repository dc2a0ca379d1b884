package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/log"
)

// BenchmarkPropose is one write of 128 bytes in a group, from its proposal until it is
// published by its leader, over links that cost nothing; all nodes are in this process. Beside
// it stands what the log alone takes for a durable frame of the same bytes (BenchmarkLog).
func BenchmarkPropose(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, callers := range []int{1, 50} {
			b.Run(fmt.Sprintf("voters=%d/callers=%d", nodes, callers), func(b *testing.B) { propose(b, nodes, callers) })
		}
	}
}

func openBenchLog(b *testing.B) *log.Log {
	b.Helper()
	dir, err := log.CreateDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	l, err := log.Open(log.Config{Dir: dir, Create: true})
	if err == nil {
		err = l.Replay(func(*log.Record) error { return nil })
	}
	if err == nil {
		err = l.Start(1)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(true) })
	return l
}

func BenchmarkLog(b *testing.B) {
	l := openBenchLog(b)
	for b.Loop() {
		if _, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: make([]byte, 128)}); err != nil {
			b.Fatal(err)
		}
		l.Release(1, l.Stats().Passed)
	}
}

func propose(b *testing.B, nodes, callers int) {
	const g = consensus.GroupID(1)
	lan := &lan{nodes: map[string]*driver.Node{}}
	c := consensus.Config{Index: 1}
	for i := range nodes {
		c.Voters = append(c.Voters, consensus.Member{ID: consensus.ReplicaID(i + 1), Node: fmt.Sprint("n", i+1)})
	}
	var all []*register
	state := consensus.State{Applied: 1, Term: 1, Config: c}
	for _, m := range c.Voters {
		l := openBenchLog(b)
		n := driver.New(driver.Config{Name: m.Node, Log: l, Link: lan.from(m.Node), Fenced: func(_ consensus.GroupID, err error) { b.Error(err) }})
		b.Cleanup(func() { n.Close() })
		lan.mu.Lock()
		lan.nodes[m.Node] = n
		lan.mu.Unlock()
		r := &register{n: n, g: g, log: l, state: state}
		all = append(all, r)
		if err := n.Create(g, m.ID, state); err != nil {
			b.Fatal(err)
		}
	}
	for i, r := range all {
		if err := r.n.Start(context.Background(), g, consensus.ReplicaID(i+1), r); err != nil {
			b.Fatal(err)
		}
	}
	var lead *register
	for lead == nil {
		time.Sleep(10 * time.Millisecond)
		for _, r := range all {
			if r.term.Load() > 0 {
				lead = r
			}
		}
	}
	per := b.N/callers + 1
	b.ResetTimer()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range per {
				data := make([]byte, 128)
				binary.LittleEndian.PutUint64(data, uint64(caller)<<40|uint64(i)+1)
				done := make(chan struct{})
				lead.wait.Store(binary.LittleEndian.Uint64(data), done)
				if err := lead.n.Propose(g, lead.term.Load(), data); err != nil {
					b.Error(err)
					return
				}
				<-done
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// A lan takes messages from node to node at once.
type lan struct {
	mu    sync.RWMutex
	nodes map[string]*driver.Node
}

type lanLink struct {
	*lan
	name string
	out  map[string]chan []byte
}

func (l *lan) from(name string) *lanLink {
	return &lanLink{l, name, map[string]chan []byte{}}
}

func (l *lanLink) Send(node string, _ bool, b []byte) {
	c := l.out[node]
	if c == nil {
		c = make(chan []byte, 1024)
		l.out[node] = c
		go func() {
			for b := range c {
				l.mu.RLock()
				n := l.nodes[node]
				l.mu.RUnlock()
				if n != nil {
					n.Deliver(l.name, b)
				}
			}
		}()
	}
	select {
	case c <- bytes.Clone(b):
	default:
	}
}

func (l *lanLink) Snapshot(context.Context, string, consensus.SnapshotHead, io.Reader) error {
	return consensus.ErrBusy
}

// A register is a machine that wakes those who wait for their writes.
type register struct {
	n     *driver.Node
	g     consensus.GroupID
	log   *log.Log
	state consensus.State
	term  atomic.Uint64 // it leads in; 0: it follows
	wait  sync.Map
}

func (r *register) State() (consensus.State, error) { return r.state, nil }

func (r *register) Apply(entries []consensus.Entry) error {
	for _, e := range entries {
		if e.Kind == consensus.Write {
			if c, ok := r.wait.LoadAndDelete(binary.LittleEndian.Uint64(e.Data)); ok {
				close(c.(chan struct{}))
			}
		}
		if e.Index%20000 == 0 {
			r.n.Trim(r.g, e.Index)
			r.log.Release(0, r.log.Stats().Whole)
		}
	}
	return nil
}

func (r *register) Durable(uint64)                      {}
func (r *register) Leads(term uint64)                   { r.term.Store(term) }
func (r *register) Follows(uint64, consensus.ReplicaID) { r.term.Store(0) }
func (r *register) Adopt(consensus.Received) error      { return consensus.ErrBusy }
func (r *register) Snapshot(context.Context) (consensus.Snapshot, error) {
	return nil, consensus.ErrBusy
}

func (r *register) Receive(context.Context, consensus.State, io.Reader) (consensus.Received, error) {
	return nil, consensus.ErrBusy
}
