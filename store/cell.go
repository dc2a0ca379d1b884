package store

import (
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// A kept is what a store knows of the cell of a group for as long as it is open, also when it has no replica of the group any more. A cell is never another
// group's in one life of the store: a reader who has not heard of that would take the word of one group for another's.
type kept struct {
	i     int    // which cell
	word  uint64 // below that no word of a later replica of the group is
	shown uint64 // the newest entry that a replica of the group has published; later ones show none before it
}

// keptOf returns what is known of a group's cell, which is the group's from now on. Caller holds mu, or is alone.
func (g *groupSide) keptOf(id consensus.GroupID) *kept {
	k := g.kept[id]
	if k == nil {
		k = &kept{i: len(g.kept)}
		g.kept[id] = k
	}
	return k
}

// openCell gives the replica the cell of its group, and has it bring nothing into memory which is older than what this store has shown of the group, as
// far as that is known before the replica is there.
func (m *member) openCell(s *Store, g *groupSide) {
	k := g.keptOf(m.group)
	word, anew := k.word, m.found.Applied != 0 // founders, or a start, at which all is zero
	if anew && word != 0 {
		word++
	}
	if !anew {
		m.floor = k.shown
	}
	m.cell.open(s.mem.Table, k.i, g.cells(), word, &m.found.Config)
}

// shown says that everything up to an entry is published. The replica calls it from one goroutine at a time.
//
// A reader with a bound (R27) has learned that this store shows the group up to an entry, and READs here for as long as the bound is, whatever becomes of the
// replica meanwhile. Another replica of the group begins with a snapshot, which may be older than that entry. So nothing of it is in memory, and every miss is asked,
// until it is as far.
func (m *member) shown(s *Store, index uint64) {
	m.cell.published(index)
	if m.floor == 0 || index < m.floor {
		return
	}
	m.floor = 0
	for _, id := range m.found.Shards {
		s.shards[id].Reached()
		s.filler.Again(s.shards[id])
	}
}

// A cell is what a replica tells those who READ (layout.Cell), and what it is written from. The engine's writers raise the word, and its applier the rest.
//
//	raise        a term is durable. The engine sends no vote of the term before that returns (R10)
//	ready        this replica leads in a term, this process has proposed the marker of it, and the marker is published (R11)
//	configured   an entry that makes a configuration is applied, and is not in effect here yet (R12)
//	published    an entry is published, and not acknowledged yet (R25)
//	end          the store has given the replica up: the word is one that nobody believes (R16)
//
// If the group gets another replica here in the same life of the store, that one has the cell. A reader who has not heard of that may take its word for the first one's. He is not
// misled:
//
//   - The word begins where the first one's was, so he finds the term that he knows there only if the first one has voted in no later one; and the first one votes
//     no more, because its id does not come back (AddGroup).
//   - If the second one votes for somebody, its word is that term before the vote leaves (R10), and he finds another one than he knows. So the configuration may be whichever of the two he
//     goes by (R12).
//   - If the first one led, he does not find that it leads: ready is 0 until the second one leads, and a term has one leader.
//
// A group that begins anew here, with founders, has terms that say nothing of those before, so its first word is above all of them. Readers believe it from the
// next election of a later term on.
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

// open takes the i-th cell of a table of so many, for a replica whose word is at least word.
func (c *cell) open(t *region.Table, i, cells int, word uint64, config *consensus.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.config = layout.Cell{Word: word, Config: config.Index}, *config
	if i < cells {
		c.place, c.off = t.Cell(i)
		c.mem = t.Root()
		layout.BeginCell(c.mem, c.off, c.now)
	}
}

// end says that there is no replica any more, and returns the last word that there was. Nothing else is called afterwards, but what is does nothing.
func (c *cell) end() (word uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word = c.now.Word
	if c.mem != nil {
		layout.EndCell(c.mem, c.off)
		c.mem = nil
	}
	return word
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

// configuration is the index of the newest configuration that the replica has published.
func (c *cell) configuration() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.Config
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
