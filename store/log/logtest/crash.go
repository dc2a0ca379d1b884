package logtest

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// What a power cut leaves of writes that were not durable, by the seed modulo modes. The
// first two are the plain ones; those that follow are what breaks logs. With the first two,
// names and lengths go the same way as the bytes; with the others, each for itself.
const (
	leaveNothing = iota
	leaveAll
	leaveSectors // each sector of 512 bytes for itself, in any of its versions
	leavePages   // each page of 4 KiB for itself
	leavePrefix  // writes up to one of them, in their order
	leaveHole    // all writes but one
	leaveOne     // one write, and what went before it in the same pages
	leaveMost    // each sector with a probability, all in their newest version
	modes
)

// Crash returns the disk as the next boot finds it. What is left of all that was not
// durable follows from the seed: 0 leaves nothing of it, 1 leaves all, and the others
// what chance says, in one of several ways. The disk itself is dead from here on, and
// stays as it is: several boots can be made out of it.
func (d *Disk) Crash(seed uint64) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.die()
	r := rand.New(rand.NewPCG(seed, 2))
	mode := seed % modes
	c, nodes := d.copy()
	pick := picker(r, int(mode), nodes)
	for _, n := range nodes { // in a fixed order, so that the seed says all
		for i := range n.pages {
			p := &n.pages[i]
			p.settle(^uint64(0), pick)
			p.cache = p.disk
		}
		switch k := len(n.sizes); {
		case mode == leaveNothing || k == 0:
		case mode == leaveAll:
			n.sure = n.sizes[k-1]
		default:
			if i := r.IntN(k + 1); i < k {
				n.sure = n.sizes[i]
			}
		}
		n.size, n.sizes = n.sure, nil
	}
	keep := r.IntN(len(c.pending) + 1) // changes of names, if they are kept in their order
	ordered := r.IntN(2) == 0
	for i, ch := range c.pending {
		var there bool
		switch {
		case mode == leaveNothing:
		case mode == leaveAll:
			there = true
		case ordered:
			there = i < keep
		default:
			there = r.IntN(2) == 0
		}
		if there {
			ch.apply(c.stable)
		}
	}
	c.names, c.pending = maps.Clone(c.stable), nil
	c.flying = map[uint64]flight{}
	return c
}

// picker returns what says how many of the versions of a page have reached a sector.
func picker(r *rand.Rand, mode int, nodes []*inode) func(*page, int) int {
	var seqs []uint64 // of all writes that are not durable
	for _, n := range nodes {
		for _, p := range n.pages {
			for _, v := range p.newer {
				seqs = append(seqs, v.seq)
			}
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	var one uint64 // the write that is meant, by leavePrefix, leaveHole and leaveOne
	if len(seqs) > 0 {
		one = seqs[r.IntN(len(seqs))]
	}
	percent := []int{5, 50, 95}[r.IntN(3)]
	var lastPage *page
	whole := 0
	return func(p *page, _ int) int {
		all := len(p.newer)
		switch mode {
		case leaveNothing:
			return 0
		case leaveAll:
			return all
		case leavePages:
			if p != lastPage {
				lastPage, whole = p, r.IntN(all+1)
			}
			return whole
		case leavePrefix, leaveOne, leaveHole:
			at := slices.IndexFunc(p.newer, func(v version) bool { return v.seq >= one })
			switch {
			case mode == leavePrefix && at < 0:
				return all // all its writes came before
			case mode == leaveHole && (at < 0 || p.newer[at].seq != one):
				return all
			case mode != leaveHole && at >= 0 && p.newer[at].seq == one:
				return at + 1
			case mode == leaveOne:
				return 0
			}
			return at
		case leaveMost:
			if r.IntN(100) < percent {
				return all
			}
			return 0
		}
		return r.IntN(all + 1)
	}
}

// Kill returns the disk as the next process finds it when the one before was killed: the
// kernel goes on, and everything that it was given is there. Of direct writes that had not
// returned each sector is there or not, by the seed, and none of it is durable.
func (d *Disk) Kill(seed uint64) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.die()
	r := rand.New(rand.NewPCG(seed, 3))
	old := make([]uint64, 0, len(d.flying))
	for seq := range d.flying {
		old = append(old, seq)
	}
	slices.Sort(old)
	c, _ := d.copy()
	for _, seq := range old {
		fl := c.flying[seq]
		fl.node.each(fl.off, fl.n, func(p *page, _, _ int, _ int64) {
			at := slices.IndexFunc(p.newer, func(v version) bool { return v.seq == seq })
			if at < 0 {
				return
			}
			before := p.disk
			if at > 0 {
				before = p.newer[at-1].data
			}
			half := &page{disk: before, newer: []version{{seq, p.newer[at].data}}}
			half.settle(seq, anySectors(r))
			p.newer = slices.Clone(p.newer)
			p.newer[at].data = half.disk
			p.cache = p.last()
		})
	}
	c.flying = map[uint64]flight{}
	return c
}

// Clone returns a copy of a disk on which nothing is on its way: the same bytes, the same
// of them durable, without the hooks. The disk goes on.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, _ := d.copy()
	c.flying = map[uint64]flight{}
	return c
}

// copy copies everything but hooks and counts. It returns the copy's files in the order in
// which their names sort. The caller holds d.mu.
func (d *Disk) copy() (*Disk, []*inode) {
	c := New(d.opt)
	c.seq = d.seq
	var nodes []*inode
	of := map[*inode]*inode{}
	get := func(n *inode) *inode {
		if of[n] == nil {
			of[n] = n.clone()
			nodes = append(nodes, of[n])
		}
		return of[n]
	}
	for _, m := range []struct{ from, to map[string]*inode }{{d.stable, c.stable}, {d.names, c.names}} {
		for _, name := range slices.Sorted(maps.Keys(m.from)) {
			m.to[name] = get(m.from[name])
		}
	}
	for _, ch := range d.pending {
		c.pending = append(c.pending, change{ch.from, ch.to, get(ch.node)})
	}
	for seq, fl := range d.flying {
		if n := of[fl.node]; n != nil { // else the file has no name any more
			c.flying[seq] = flight{n, fl.off, fl.n}
		}
	}
	return c, nodes
}
