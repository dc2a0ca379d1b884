package store

import (
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// A cell is what a replica tells those who READ (layout.Cell), and what it is written from. The engine's writers raise the word, and its applier the rest.
//
//	raise        a term is durable. The engine sends no vote of the term before that returns (R10)
//	ready        this replica leads in a term, this process has proposed the marker of it, and the marker is published (R11)
//	configured   an entry that makes a configuration is applied, and is not in effect here yet (R12)
//	published    an entry is published, and not acknowledged yet (R25)
//
// The replica that leads tells its readers of the term and the configuration only when the cell shows both (SightOf), so that whoever knows them
// finds in its memory all that was acknowledged, or shown to anybody, before. A new incarnation begins with a cell of zeros: it has
// published nothing, and its memory is another one.
type cell struct {
	mu     sync.Mutex // a leaf
	mem    []byte     // nil: there is none
	off    int
	place  layout.Place
	now    layout.Cell
	config consensus.Config // of now.Config
}

// open takes the i-th cell of a table of so many.
func (c *cell) open(t *region.Table, i, cells int, config *consensus.Config) {
	if i < cells {
		c.place, c.off = t.Cell(i)
		c.mem = t.Root()
	}
	c.configured(*config)
}

// published says that everything up to an entry is in the memory that is READ. The replica calls it from one goroutine at a time.
func (c *cell) published(index uint64) {
	if c.mem != nil {
		layout.StorePublished(c.mem, c.off, index)
	}
}

// store writes the cell. Caller holds mu.
func (c *cell) store() {
	if c.mem != nil {
		layout.StoreCell(c.mem, c.off, c.now)
	}
}

func (c *cell) raise(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Word = max(c.now.Word, term)
	c.store()
}

// ready does nothing if a later term is durable: somebody else may lead that.
func (c *cell) ready(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Word == term {
		c.now.Ready = term
		c.store()
	}
}

func (c *cell) configured(config consensus.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if config.Index >= c.now.Config {
		c.now.Config, c.config = config.Index, config
		c.store()
	}
}

// A Sight is what a reader of a replica's memory has to know of it.
type Sight struct {
	Cell layout.Place // of layout.CellRead bytes, in region 0
	// Term is that in which this replica leads and has published its marker, so that the memory of this store shows all that was done before; 0: it does
	// not, and nobody may believe what he READs of the group here.
	Term   uint64
	Config consensus.Config // in force here
}

// SightOf tells of this store's replica of a group. false: it has none, or none that can be READ.
func SightOf(s *Store, group consensus.GroupID) (Sight, bool) {
	for i := range s.groups.of {
		if m := s.groups.of[i].Load(); m != nil && m.group == group {
			v, ok := m.cell.sight()
			if _, leads := m.Ready(); !leads {
				v.Term = 0
			}
			return v, ok
		}
	}
	return Sight{}, false
}

func (c *cell) sight() (Sight, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Sight{Cell: c.place, Config: c.config}
	if c.now.Ready == c.now.Word {
		v.Term = c.now.Ready
	}
	return v, c.mem != nil && c.now.Config != 0
}

// CellForTests is what a reader finds in the cell of this store's replica of a group now. false: it has none. The store is not closed meanwhile.
func CellForTests(s *Store, group consensus.GroupID) (layout.Cell, bool) {
	for i := range s.groups.of {
		if m := s.groups.of[i].Load(); m != nil && m.group == group && m.cell.mem != nil {
			m.cell.mu.Lock()
			defer m.cell.mu.Unlock()
			c, err := layout.ParseCell(m.cell.mem[m.cell.off:][:layout.CellRead])
			return c, err == nil
		}
	}
	return layout.Cell{}, false
}
