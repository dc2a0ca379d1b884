package store

import (
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// TestCellRules: what a cell shows, and what of it is told, step by step.
func TestCellRules(t *testing.T) {
	table, err := region.NewTable(region.Config{Memory: new(region.HeapMemory), Incarnation: 1, Shards: 1, Cells: 2})
	if err != nil {
		t.Fatal(err)
	}
	config := func(i uint64) consensus.Config {
		return consensus.Config{Index: i, Voters: []consensus.Member{{ID: 1, Node: "a"}}}
	}
	var c cell
	none := consensus.Config{}
	c.open(table, 1, 2, 0, &none)
	for _, step := range []struct {
		name string
		do   func()
		want layout.Cell
		term uint64 // told
		told bool   // at all
	}{
		{"it is new", func() {}, layout.Cell{}, 0, false},
		{"a term is durable", func() { c.raise(3) }, layout.Cell{Word: 3}, 0, false},
		{"it has a configuration", func() { c.configured(config(1)) }, layout.Cell{Word: 3, Config: 1}, 0, true},
		{"an older term", func() { c.raise(2) }, layout.Cell{Word: 3, Config: 1}, 0, true},
		{"it leads another term", func() { c.ready(2) }, layout.Cell{Word: 3, Config: 1}, 0, true},
		{"it leads a term that is not durable", func() { c.ready(4) }, layout.Cell{Word: 3, Config: 1}, 0, true},
		{"it leads", func() { c.ready(3) }, layout.Cell{Word: 3, Config: 1, Ready: 3}, 3, true},
		{"another configuration", func() { c.configured(config(9)) }, layout.Cell{Word: 3, Config: 9, Ready: 3}, 3, true},
		{"an older one", func() { c.configured(config(8)) }, layout.Cell{Word: 3, Config: 9, Ready: 3}, 3, true},
		{"a later term is durable", func() { c.raise(5) }, layout.Cell{Word: 5, Config: 9, Ready: 3}, 0, true},
		{"it was ready in a term that is over", func() { c.ready(3) }, layout.Cell{Word: 5, Config: 9, Ready: 3}, 0, true},
		{"it leads again", func() { c.ready(5) }, layout.Cell{Word: 5, Config: 9, Ready: 5}, 5, true},
	} {
		step.do()
		got, err := layout.ParseCell(table.Root()[c.off:])
		sight, ok := c.sight()
		if err != nil || got != step.want || ok != step.told || ok && (sight.Term != step.term || sight.Config.Index != step.want.Config || sight.Cell != c.place) {
			t.Errorf("%s: %+v, %v; told %+v, %v; want %+v, term %d", step.name, got, err, sight, ok, step.want, step.term)
		}
	}
	c = cell{}
	c.open(table, 2, 2, 0, &none) // there are no more
	c.raise(1)
	c.configured(config(1))
	c.ready(1)
	if _, ok := c.sight(); ok {
		t.Error("a replica without a cell is told of")
	}
}

func (h *host) cellOf(g consensus.GroupID) (layout.Cell, Sight) {
	sight, ok := SightOf(h.store(), g)
	if !ok {
		h.c.t.Fatalf("store %d tells of no cell of group %d", h.id, g)
	}
	var b [layout.CellRead]byte // word by word, as whoever READs it gets it
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], layout.LoadWord(h.store().mem.Table.Root(), int(sight.Cell.Byte())+i))
	}
	c, err := layout.ParseCell(b[:])
	if err != nil {
		h.c.t.Fatal(err)
	}
	return c, sight
}

// publishedOf is what a reader finds to be published in the cell of a replica.
func (h *host) publishedOf(g consensus.GroupID) uint64 {
	sight, ok := SightOf(h.store(), g)
	if !ok {
		h.c.t.Fatalf("store %d tells of no cell of group %d", h.id, g)
	}
	return layout.LoadWord(h.store().mem.Table.Root(), int(layout.CellPublished(sight.Cell).Byte()))
}

// TestCells: one replica of a group is ready, in the term that all words show in the end; one that was ready and is deposed shows a higher word by the
// time that another one is ready; and a new life is not ready by what its log says.
func TestCells(t *testing.T) {
	c := newCluster(t, nil)
	c.put(0, "a", "1")
	lead := c.leader(0)
	cell, sight := lead.cellOf(pair)
	if sight.Term == 0 || cell.Word != sight.Term || cell.Ready != sight.Term || cell.Config != 1 || len(sight.Config.Voters) != 3 {
		t.Fatalf("the leader: %+v, %+v", cell, sight)
	}
	if _, ok := SightOf(lead.store(), 99); ok {
		t.Error("a group that is not there has a cell")
	}
	other := c.hosts[(lead.id+1)%3]
	if cell, sight := other.cellOf(pair); sight.Term != 0 || cell.Config != 1 {
		t.Errorf("another one: %+v, %+v", cell, sight)
	}
	before := sight.Term
	// What is acknowledged the leader shows as published by then, and the others in a moment; no more than it has published.
	shows := lead.publishedOf(pair)
	for i := range 20 {
		c.put(0, "a", strconv.Itoa(i))
		now := lead.publishedOf(pair)
		if now <= shows {
			t.Fatalf("entry %d is published after put %d, and entry %d was before", now, i, shows)
		}
		shows = now
	}
	for _, h := range c.hosts {
		for deadline := time.Now().Add(10 * time.Second); h.publishedOf(pair) < shows; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("store %d shows entry %d, the leader %d", h.id, h.publishedOf(pair), shows)
			}
		}
	}
	c.lead(pair, other)
	c.put(0, "a", "2")
	lead = c.leader(0)
	cell, sight = lead.cellOf(pair)
	if sight.Term <= before || cell.Ready != sight.Term {
		t.Errorf("the next leader: %+v, %+v; before it term %d", cell, sight, before)
	}
	term, higher := sight.Term, 0
	for _, h := range c.hosts {
		cell, sight := h.cellOf(pair)
		if cell.Word >= term {
			higher++
		}
		if h != lead && sight.Term != 0 {
			t.Errorf("store %d is ready, too: %+v, %+v", h.id, cell, sight)
		}
	}
	if higher < 2 {
		t.Errorf("%d words show the term", higher)
	}
	lead.stop()
	lead.start()
	if got := lead.publishedOf(pair); got == 0 {
		t.Error("a new life does not show what its base has")
	}
	if cell, sight := lead.cellOf(pair); cell.Ready != 0 && cell.Ready <= term || sight.Term != 0 && sight.Term <= term {
		t.Errorf("a new life: %+v, %+v; the last one was ready in term %d", cell, sight, term)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if cell, _ := lead.cellOf(pair); cell.Word >= term {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a new life does not show the term of its log")
		}
		time.Sleep(time.Millisecond)
	}
}
