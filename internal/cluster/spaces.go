package cluster

import (
	"cmp"
	"slices"
)

// Spaces of tenants in a cluster with replicas. A space has groups of its own, whose logs and keys are in its own store at each node, so that an entry which makes one tenant's
// store fail stops replicas of that tenant alone.
//
//	shard ──modulo the number of the space's groups──▶ position ──Space.Groups──▶ group ──Replicas──▶ node, id of the replica there
//	position ──Replication.Beside──▶ the node's own group that has the shard of that number: the space's group is to be at the same nodes
//
// The shard of a key is the same in every space. Which shards a group has depends on its position alone, which it keeps for ever; a group that takes the place of another one
// (Group.Was) has its position, too.
//
// A group of a space begins with nothing, at its replica 1, which is its only voter then (Group.Founds). The others learn what it has, as any replica does that comes later. So a node may hear of
// the space by whichever map: none needs to know the one that it began by.
//
// Numbers of groups and of spaces are drawn from one row (Replication.Last), and none is given twice. A space that is dropped and made again under its name has other numbers, so no
// replica of the first one is taken for one of the second, and no old key comes back.

const (
	// MaxSpaces bounds the spaces of a map, MaxSpaceGroups the groups of all of them.
	MaxSpaces      = 64
	MaxSpaceGroups = 256
	// GroupsOfSpace is how many groups a space has where nobody says, if there are as many shards.
	GroupsOfSpace = 4
)

// A Space is what a tenant has in a cluster with replicas.
type Space struct {
	ID     uint32 // spaces stand by it, rising
	Name   string
	Memory uint64 // bytes that its store may have in memory, at each node; 0: what the node's configuration says
	Groups []Group
}

// CheckSpaceName says whether a name can be that of a tenant's space: 1 to 63 of a-z, 0-9, '-' and '.', a letter or digit first, and no word that stands for another space. ErrMalformed.
func CheckSpaceName(name string) error {
	ok := len(name) >= 1 && len(name) <= MaxName && name[0] != '-' && name[0] != '.' && name != "main" && name != "own"
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.')
	}
	if !ok {
		return malformed(`space name %q: 1 to %d of a-z, 0-9, '-' and '.' are needed, a letter or digit first, and neither "main" nor "own"`, clip(name), MaxName)
	}
	return nil
}

// Group is the group of a shard.
func (s *Space) Group(shard uint16) *Group { return &s.Groups[int(shard)%len(s.Groups)] }

// Beside is the node's own group beside which the groups of spaces at a position run: the one that has the shard of that number.
func (r *Replication) Beside(position int) *Group { return &r.Groups[r.Group[position]] }

// Space returns the space of a name; nil: there is none.
func (r *Replication) Space(name string) *Space {
	for i := range r.Spaces {
		if r.Spaces[i].Name == name {
			return &r.Spaces[i]
		}
	}
	return nil
}

// Founds says whether the replica of an id begins the group of a space, with nothing: it is the first one that the group ever had, and the group was no other one before. Any other replica gets its state
// from that one.
func (g *Group) Founds(replica uint64) bool { return g.Was == 0 && replica == 1 }

// last is the highest number that a group or a space ever had, as far as the map knows.
func (r *Replication) last() uint32 { return max(r.Last, r.Groups[len(r.Groups)-1].ID) }

// checkSpaces holds the spaces of a map to their rules. What the other rules say of groups is held already.
func (r *Replication) checkSpaces(m *Map) error {
	switch {
	case r.Last == 0 && r.Spaces == nil:
		return nil
	case r.Meta == nil || r.Last == 0 || m.BornBy():
		return malformed("%d spaces, up to number %d, in a shard map that can have none: there is no meta group, no highest number, or groups begin by it", len(r.Spaces), r.Last)
	case r.Groups[len(r.Groups)-1].ID > r.Last:
		return malformed("group %d is there, and the highest number that ever was is said to be %d", r.Groups[len(r.Groups)-1].ID, r.Last)
	case len(r.Spaces) > MaxSpaces:
		return malformed("%d spaces, at most %d", len(r.Spaces), MaxSpaces)
	}
	taken, was := make(map[uint32]bool), make(map[uint32]bool)
	for i := range r.Groups {
		taken[r.Groups[i].ID], was[r.Groups[i].Was] = true, true
	}
	names, groups := make(map[string]bool), 0
	for i := range r.Spaces {
		s := &r.Spaces[i]
		if err := CheckSpaceName(s.Name); err != nil {
			return err
		}
		switch groups += len(s.Groups); {
		case i > 0 && s.ID <= r.Spaces[i-1].ID || s.ID == 0 || s.ID > r.Last || taken[s.ID]:
			return malformed("space %q has number %d, which is not free, or stands behind a higher one, or is above %d", s.Name, s.ID, r.Last)
		case names[s.Name]:
			return malformed("space %q is there twice", s.Name)
		case len(s.Groups) < 1 || len(s.Groups) > len(m.Owner) || groups > MaxSpaceGroups:
			return malformed("space %q has %d groups: 1 to one for each of %d shards are possible, and %d of all spaces", s.Name, len(s.Groups), len(m.Owner), MaxSpaceGroups)
		}
		names[s.Name], taken[s.ID] = true, true
		for j := range s.Groups {
			g := &s.Groups[j]
			switch {
			case g.ID <= s.ID || g.ID > r.Last || taken[g.ID]:
				return malformed("group %d of space %q has a number that is not free, or is not between %d and %d", g.ID, s.Name, s.ID, r.Last)
			case g.lineage() != nil:
				return g.lineage()
			case g.Was != 0 && (g.Was <= s.ID || was[g.Was]):
				return malformed("group %d of space %q is said to have been group %d, which was none of it, or is another one", g.ID, s.Name, g.Was)
			}
			taken[g.ID], was[g.Was] = true, true
			if err := g.check(m); err != nil {
				return err
			}
			if err := g.checkTop(); err != nil {
				return err
			}
		}
	}
	for id := range was {
		if id != 0 && taken[id] {
			return malformed("group %d is there, and is said to have become another one", id)
		}
	}
	return nil
}

// checkSpaces compares what stays for ever in the spaces of two maps. A space may come, with numbers above all that ever were, and go, with all its groups.
func (c *change) checkSpaces() error {
	before, after := c.previous.Replication, c.next.Replication
	last := before.last()
	if after.last() < last {
		return c.fixed("the highest number of a group or space falls from %d to %d: one could come twice", last, after.last())
	}
	for i := range after.Spaces {
		is := &after.Spaces[i]
		at := slices.IndexFunc(before.Spaces, func(s Space) bool { return s.ID == is.ID })
		if at < 0 {
			if is.ID <= last {
				return c.fixed("space %q comes as number %d, which may have been another one: they are above %d", is.Name, is.ID, last)
			}
			continue // its groups have numbers above its own
		}
		was := &before.Spaces[at]
		if is.Name != was.Name || len(is.Groups) != len(was.Groups) {
			return c.fixed("space %d is %q of %d groups, and becomes %q of %d", was.ID, was.Name, len(was.Groups), is.Name, len(is.Groups))
		}
		for j := range is.Groups {
			if err := c.group(j, &was.Groups[j], &is.Groups[j], last); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendSpaces appends what only a map of format 6 has:
//
//	┌last┬spaces┐  per space: ┌id┬name┬memory┬groups┐  per group: as in format 4
//	└4   ┴1     ┘             └4 ┴1+n ┴8     ┴2     ┘
func appendSpaces(dst []byte, r *Replication) []byte {
	dst = append(le.AppendUint32(dst, r.Last), byte(len(r.Spaces)))
	for i := range r.Spaces {
		s := &r.Spaces[i]
		dst = appendText(le.AppendUint32(dst, s.ID), s.Name)
		dst = le.AppendUint16(le.AppendUint64(dst, s.Memory), uint16(len(s.Groups)))
		for j := range s.Groups {
			dst = appendGroup(dst, &s.Groups[j], true, true)
		}
	}
	return dst
}

// maxSpaces bounds its bytes.
const maxSpaces = 4 + 1 + MaxSpaces*(4+1+MaxName+8+2) + MaxSpaceGroups*maxGroup

// spaces reads what appendSpaces wrote.
func (f *fields) spaces(r *Replication) {
	r.Last = f.u32()
	many := int(f.u8())
	if f.err == nil && (r.Last == 0 || many > MaxSpaces) {
		f.fail(malformed("a shard map of format %d with %d spaces, at most %d, and numbers up to %d", spacesFormat, many, MaxSpaces, r.Last))
	}
	for i := 0; i < many && f.err == nil; i++ {
		s := Space{ID: f.u32(), Name: f.text(), Memory: f.u64()}
		groups := int(f.u16())
		if groups > MaxSpaceGroups {
			f.fail(malformed("a space of %d groups, at most %d", groups, MaxSpaceGroups))
		}
		for j := 0; j < groups && f.err == nil; j++ {
			s.Groups = append(s.Groups, f.group(true, true))
		}
		r.Spaces = append(r.Spaces, s)
	}
}

// Of is the map as those see it who have to do with one space alone: its groups stand where the node's own do, and no other space is in it. So a tenant's client needs to know nothing of spaces, and hears of no other tenant; and of
// maps that follow each other (CheckChange) what they say of one space does, too, for as long as there is that space. "": the node's own groups. nil: there is no such space.
func (m *Map) Of(space string) *Map {
	switch {
	case m.Replication == nil || m.Replication.Last == 0:
		if space != "" {
			return nil
		}
		return m
	case space != "" && m.Replication.Space(space) == nil:
		return nil
	}
	seen, r := *m, *m.Replication
	r.Spaces, r.Last = nil, 0
	seen.Replication = &r
	if space == "" {
		return &seen
	}
	s := m.Replication.Space(space)
	r.Groups = slices.SortedFunc(slices.Values(s.Groups), func(a, b Group) int { return cmp.Compare(a.ID, b.ID) }) // a group that took the place of another one stands last, as elsewhere
	r.Group, seen.Owner = make([]uint16, len(m.Owner)), make([]uint16, len(m.Owner))
	for shard := range m.Owner {
		id := s.Group(uint16(shard)).ID
		g := slices.IndexFunc(r.Groups, func(g Group) bool { return g.ID == id })
		r.Group[shard], seen.Owner[shard] = uint16(g), r.Groups[g].first()
	}
	return &seen
}
