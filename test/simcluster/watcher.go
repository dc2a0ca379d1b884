package simcluster

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A watcher looks at the cells of all replicas again and again, and at those of a node in the moment in which it loses its power: what it has
// seen any client could have READ. It holds them to
//
//   - R10: a word never falls, over the lives of a node, but that a new life begins with none;
//   - R11: a ready term is at most the word, and no two nodes are ready in one term;
//   - R12: a configuration never falls within a life.
//
// Another replica of a group at the same node is another cell, as far as these go: what its word begins with package store says.
type watcher struct {
	w     *World
	cells map[cellOf]*lastCell
	ready map[termOf]string // the node that was
	err   error             // the first thing that must not be

	samples, snapshots int
	sending            map[string]bool // leaders that were sending a snapshot when they were looked at, and to whom
}

type cellOf struct {
	node    string
	group   uint32
	replica uint64
}

type termOf struct {
	group uint32
	term  uint64
}

// A lastCell is what was seen of a cell. Its word is the highest one of all lives.
type lastCell struct {
	word, config uint64
	life         int
}

func newWatcher(w *World) *watcher {
	return &watcher{w: w, cells: map[cellOf]*lastCell{}, ready: map[termOf]string{}, sending: map[string]bool{}}
}

// run looks until done is closed.
func (a *watcher) run(done <-chan struct{}) {
	for turn := 0; ; turn++ {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(1+turn%37) * time.Millisecond):
		}
		for _, n := range a.w.nodes {
			n.mu.Lock()
			if n.srv != nil {
				a.look(n)
			}
			n.mu.Unlock()
			if turn%8 == 0 {
				a.count(n)
			}
		}
	}
}

// look samples the cells of a node that is up. The caller holds the node's mu.
func (a *watcher) look(n *Node) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for _, r := range store.ReplicasOf(server.StoreForTests(n.srv)) {
		c, ok := store.CellForTests(server.StoreForTests(n.srv), r.ID)
		if !ok {
			continue
		}
		a.samples++
		a.judge(n, uint32(r.ID), uint64(r.Replica), c)
	}
}

func (a *watcher) judge(n *Node, id uint32, replica uint64, c layout.Cell) {
	of := cellOf{n.id, id, replica}
	last := a.cells[of]
	if last == nil {
		last = &lastCell{}
		a.cells[of] = last
	}
	if last.life != n.life {
		last.life, last.config = n.life, 0
	}
	at := fmt.Sprintf("group %d, replica %d at node %s, life %d", id, replica, n.id, n.life)
	switch by := a.ready[termOf{id, c.Ready}]; {
	case c.Word != 0 && c.Word < last.word:
		a.wrong("R10: %s: its word is %d, and was %d", at, c.Word, last.word)
	case c.Config < last.config:
		a.wrong("R12: %s: its configuration is %d, and was %d", at, c.Config, last.config)
	case c.Ready > c.Word:
		a.wrong("R11: %s: it is ready in term %d, and its word is %d", at, c.Ready, c.Word)
	case c.Ready != 0 && by != "" && by != n.id:
		a.wrong("R11: %s: it is ready in term %d, in which node %s was", at, c.Ready, by)
	}
	last.word, last.config = max(last.word, c.Word), c.Config
	if c.Ready != 0 {
		a.ready[termOf{id, c.Ready}] = n.id
	}
}

// wrong notes the first thing that must not be.
func (a *watcher) wrong(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

// count notes the snapshots that a node begins to send.
func (a *watcher) count(n *Node) {
	for _, g := range n.groups() {
		for _, r := range g.Replicas {
			way := fmt.Sprint(g.ID, n.id, r.Node)
			if r.Snapshot && !a.sending[way] {
				a.snapshots++
			}
			a.sending[way] = r.Snapshot
		}
	}
}

// terms is how many elections were won, as far as they were seen.
func (a *watcher) terms() int {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return len(a.ready)
}
