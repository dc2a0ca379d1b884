package cluster

import "slices"

// The groups of a cluster with replicas. The map says which shards a group has, for ever, and which replicas it is to have; which of them vote
// now, the group's own log says, and its leader brings that to what the map says, one replica at a time.
//
//	shard ──Group──▶ group ──Replicas──▶ node, id of the replica there      the first one leads where it can
//	                            └─ Leaves: it is on its way out             the others vote, or will
//
// A node has the replicas that stand in the map, and no others: one that is not there yet is made, empty, and gets its state from the others; one that
// is not there any more is given up. A map of version 1 is what the groups begin with: each replica votes from the first entry on.
//
// A group that has lost its majority for good is replaced by another one, of a higher id, which begins with what one of its replicas has (Was). The id of the one that was is burnt: no later map has it.
//
// A cluster that had keys before it had groups has its groups begin with them: the first map with groups adopts (Adopts), and says so for ever. Each of its groups
// has one replica then, at the node that owned its shards, and that replica begins with what its node has. By any other map a replica begins with nothing.
//
// The meta group is a group without shards. Its log has the map itself, and what is being done about it (package meta).

const (
	// MaxReplicas bounds the replicas of a group; maxInMap counts those that are on their way out, too.
	MaxReplicas = 7
	maxInMap    = 2 * MaxReplicas
	// MaxGroups bounds the groups. More of them than nodes, several times over, cost syncs and win nothing.
	MaxGroups = 256
	// GroupsOfNode is how many groups there are for each node where nobody says, if there are as many shards. Two, so that those which a
	// dead node has led are shared by the others; not more, because each group makes entries of its own of the writes that come at a
	// time, and an entry costs the same whatever is in it (docs/decisions/2026-11-29-groups.md).
	GroupsOfNode = 2
)

// A Replication says which replicas a cluster has. It is immutable.
type Replication struct {
	// Stores are, by node, the stores that the nodes had then. A directory with another one has not promised what that
	// one has: it is no replica of the map (R18).
	Stores [][16]byte
	Zones  []string // by node: where it stands; "": nobody has said
	Group  []uint16 // by shard: index in Groups
	Groups []Group
	// Lives has a random number for each generation of the meta group, from the first that was made anew on (Map.Generation), so that two which were made at the same time, by nodes
	// that did not reach each other, are not taken for one (lineage.go).
	Lives []uint64
	// Born is the version of the map by which meta group and groups began, and Adopts says that the groups began with what the owners of their shards had. 0 in the map of a cluster that
	// was made with groups: they began by version 1, and with nothing.
	Born   uint64
	Adopts bool
	// Meta is the meta group, whose ID is 0; nil: there is none, so that the map can never be changed (a map of format 2, which older versions have made; Zones
	// is nil then, too).
	Meta *Group
}

// A Group is a group of shards.
type Group struct {
	ID  uint32 // from 1, rising; 0: the meta group
	Top uint64 // the highest id that a replica of it ever had. 0 in a map of format 2
	// Was is the id of the group whose shards it has taken over, and with what whose replica its own replica 1 has begun, at the same node; 0: there was none. Below ID.
	Was uint32
	// Times is how often its shards have been taken over so, this time counted, and Phase how far it is; both are 0 where Was is.
	Times uint16
	Phase Phase
	// Replicas are those that it is to have, on different nodes; the first one leads where it can.
	Replicas []Replica
}

// A Replica is a replica of a group at a node. Its id is never used twice in the group.
type Replica struct {
	Node   uint16 // index in Map.Nodes
	ID     uint64 // from 1
	Leaves bool   // the group's leader is to take it out
}

// check holds a replication to its rules.
func (r *Replication) check(m *Map) error {
	switch {
	case len(r.Stores) != len(m.Nodes):
		return malformed("%d stores of %d nodes", len(r.Stores), len(m.Nodes))
	case len(r.Group) != len(m.Owner):
		return malformed("groups of %d shards, of %d", len(r.Group), len(m.Owner))
	case len(r.Groups) < 1 || len(r.Groups) > MaxGroups:
		return malformed("%d groups, 1 to %d are possible", len(r.Groups), MaxGroups)
	}
	for i, s := range r.Stores {
		if s == [16]byte{} || slices.Contains(r.Stores[:i], s) {
			return malformed("node %q has no store of its own", m.Nodes[i].ID)
		}
	}
	if err := r.checkFormat(); err != nil {
		return err
	}
	if err := r.checkBirth(m); err != nil {
		return err
	}
	if r.Meta != nil {
		if err := r.Meta.check(m); err != nil {
			return err
		}
	}
	shards := make([]int, len(r.Groups))
	for shard, g := range r.Group {
		if int(g) >= len(r.Groups) {
			return malformed("shard %d belongs to group %d of %d", shard, g, len(r.Groups))
		}
		shards[g]++
		if m.Owner[shard] != r.Groups[g].first() {
			return malformed("shard %d belongs to node %d, and the first of its group is at another", shard, m.Owner[shard])
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		switch {
		case shards[i] == 0:
			return malformed("group %d has no shards", g.ID)
		case g.ID == 0 || i > 0 && g.ID <= r.Groups[i-1].ID:
			return malformed("group %d stands behind a group of that or a higher number", g.ID)
		case g.Was >= g.ID || (g.Was == 0) != (g.Times == 0) || g.Was == 0 && g.Phase != Begins || g.Phase > Settled:
			return malformed("group %d is said to have been group %d, %d times, in phase %d", g.ID, g.Was, g.Times, g.Phase)
		case g.Was != 0 && (m.Version == 1 || slices.ContainsFunc(r.Groups, func(o Group) bool { return o.ID == g.Was || o.Was == g.Was && o.ID != g.ID })):
			return malformed("group %d is said to have been group %d, which is there, or is another one, or never was", g.ID, g.Was)
		}
		if err := g.check(m); err != nil {
			return err
		}
	}
	return nil
}

// BornBy says whether a map is the one by which meta group and groups begin: its replicas are founders, and those of any other one get their state from the others.
func (m *Map) BornBy() bool {
	return m.Replication != nil && m.Version == max(1, m.Replication.Born)
}

// Founder says whether the replica of an id begins its group with what its node has: it is the first one that the group ever had, of a map that adopts, and the group was no other one before.
func (r *Replication) Founder(g *Group, replica uint64) bool {
	return r.Adopts && g.Was == 0 && replica == 1
}

// checkBirth holds what a map says of how its groups began to its rules.
func (r *Replication) checkBirth(m *Map) error {
	switch {
	case r.Born == 0 && !r.Adopts:
		return nil
	case r.Meta == nil:
		return malformed("groups that began by map %d, in a shard map without a meta group", r.Born)
	case r.Born == 0 || r.Born > m.Version || r.Born == 1 && !r.Adopts:
		return malformed("groups are said to have begun by map %d, and this one has version %d", r.Born, m.Version)
	case m.Version != r.Born || !r.Adopts:
		return nil
	}
	for i := range r.Groups {
		if g := &r.Groups[i]; len(g.Replicas) != 1 || g.Top != 1 || g.Replicas[0].Leaves {
			return malformed("group %d, which begins with what a node has, has %d replicas: at first it is at that node alone", g.ID, len(g.Replicas))
		}
	}
	return nil
}

// checkFormat holds the parts that only a map of format 3 has to being all there, or none.
func (r *Replication) checkFormat() error {
	if r.Meta == nil {
		if r.Zones != nil || r.Lives != nil || slices.ContainsFunc(r.Groups, func(g Group) bool {
			return g.Top != 0 || g.Was != 0 || slices.ContainsFunc(g.Replicas, func(p Replica) bool { return p.Leaves })
		}) {
			return malformed("zones, ids or replicas that leave, in a shard map without a meta group")
		}
		return nil
	}
	if r.Meta.ID != 0 || r.Meta.Was != 0 || r.Meta.Times != 0 || r.Meta.Phase != Begins {
		return malformed("a meta group of id %d, which was group %d: both are 0", r.Meta.ID, r.Meta.Was)
	}
	if slices.Contains(r.Lives, 0) {
		return malformed("a meta group that was made anew without a number of its own")
	}
	if len(r.Zones) != len(r.Stores) {
		return malformed("%d zones of %d nodes", len(r.Zones), len(r.Stores))
	}
	for _, z := range r.Zones {
		if z != "" && !printable(z, MaxName) {
			return malformed("zone %q: up to %d visible characters of ASCII are possible", clip(z), MaxName)
		}
	}
	for _, g := range append([]Group{*r.Meta}, r.Groups...) {
		for _, p := range g.Replicas {
			if p.ID > g.Top {
				return malformed("group %d has replica %d, and the highest that it ever had is said to be %d", g.ID, p.ID, g.Top)
			}
		}
	}
	return nil
}

// check holds the replicas of a group to their rules.
func (g *Group) check(m *Map) error {
	if len(g.Replicas) < 1 || len(g.Replicas) > maxInMap {
		return malformed("group %d has %d replicas, 1 to %d are possible", g.ID, len(g.Replicas), maxInMap)
	}
	stay := 0
	for j, p := range g.Replicas {
		if p.ID == 0 || int(p.Node) >= len(m.Nodes) {
			return malformed("group %d has replica %d at node %d of %d", g.ID, p.ID, p.Node, len(m.Nodes))
		}
		for _, o := range g.Replicas[:j] {
			if o.ID == p.ID || o.Node == p.Node {
				return malformed("group %d has replicas %d and %d at nodes %d and %d: both must differ", g.ID, o.ID, p.ID, o.Node, p.Node)
			}
		}
		if !p.Leaves {
			stay++
		}
	}
	if stay < 1 || stay > MaxReplicas {
		return malformed("group %d has %d replicas that do not leave, 1 to %d are possible", g.ID, stay, MaxReplicas)
	}
	return nil
}

// first is the node of the first replica; out of range of any map if there is none.
func (g *Group) first() uint16 {
	if len(g.Replicas) == 0 {
		return 1<<16 - 1
	}
	return g.Replicas[0].Node
}

// At returns the replica that a group has at a node; 0: none.
func (g *Group) At(node int) uint64 {
	for _, p := range g.Replicas {
		if int(p.Node) == node {
			return p.ID
		}
	}
	return 0
}

// ShardsOf returns the shards of the group at an index, rising.
func (r *Replication) ShardsOf(group int) (shards []uint16) {
	for shard, g := range r.Group {
		if int(g) == group {
			shards = append(shards, uint16(shard))
		}
	}
	return shards
}

// appendReplication appends what a map of format 2 has behind its owners:
//
//	┌groups┐  per node: ┌store┐  per shard: ┌group┐  per group: ┌id┬many┬ per replica: node, id ┐
//	└2     ┘            └16   ┘             └2    ┘             └4 ┴1   ┴ 2 + 8 each            ┘
//
// and one of format 3, of which the meta group is the first one and is not counted:
//
//	┌groups┐  per node: ┌store┬zone┐  per shard: ┌group┐  per group: ┌id┬top┬many┬ per replica: node, id, leaves ┐
//	└2     ┘            └16   ┴1+n ┘             └2    ┘             └4 ┴8  ┴1   ┴ 2 + 8 + 1 each                ┘
//
// and one of format 4, of which at least one group was another one, or the meta group was made anew:
//
//	as format 3, but                                                per group: ┌id┬top┬was┬times┬phase┬many┬ per replica: node, id, leaves ┐
//	                                                                           └4 ┴8  ┴4  ┴2    ┴1    ┴1   ┴ 2 + 8 + 1 each                ┘
//	behind it        ┌lives┬ 8 each ┐
//	                 └1    ┴        ┘
//
// and one of format 5, whose groups began otherwise than by map 1 and with nothing:
//
//	as format 4, and behind it ┌born┬adopts┐
//	                           └8   ┴1     ┘
func appendReplication(dst []byte, r *Replication) []byte {
	dst = le.AppendUint16(dst, uint16(len(r.Groups)))
	live, born := r.Meta != nil, r.Born != 0
	was := born || r.recovered()
	for i := range r.Stores {
		dst = append(dst, r.Stores[i][:]...)
		if live {
			dst = appendText(dst, r.Zones[i])
		}
	}
	for _, g := range r.Group {
		dst = le.AppendUint16(dst, g)
	}
	if live {
		dst = appendGroup(dst, r.Meta, live, was)
	}
	for i := range r.Groups {
		dst = appendGroup(dst, &r.Groups[i], live, was)
	}
	if was {
		dst = append(dst, byte(len(r.Lives)))
		for _, life := range r.Lives {
			dst = le.AppendUint64(dst, life)
		}
	}
	if born {
		dst = append(le.AppendUint64(dst, r.Born), 0)
		if r.Adopts {
			dst[len(dst)-1] = 1
		}
	}
	return dst
}

// recovered says whether a group was another one, or the meta group was made anew.
func (r *Replication) recovered() bool {
	return len(r.Lives) > 0 || slices.ContainsFunc(r.Groups, func(g Group) bool { return g.Was != 0 })
}

// appendGroup appends a group; live: of a map of format 3 or 4, was: of format 4.
func appendGroup(dst []byte, g *Group, live, was bool) []byte {
	dst = le.AppendUint32(dst, g.ID)
	if live {
		dst = le.AppendUint64(dst, g.Top)
	}
	if was {
		dst = append(le.AppendUint16(le.AppendUint32(dst, g.Was), g.Times), byte(g.Phase))
	}
	dst = append(dst, byte(len(g.Replicas)))
	for _, p := range g.Replicas {
		dst = le.AppendUint64(le.AppendUint16(dst, p.Node), p.ID)
		switch {
		case live && p.Leaves:
			dst = append(dst, 1)
		case live:
			dst = append(dst, 0)
		}
	}
	return dst
}

// maxReplication bounds its bytes.
const maxReplication = 2 + MaxNodes*(16+1+MaxName) + MaxShards*2 + (1+MaxGroups)*(20+maxInMap*11) + 1 + MaxGenerations*8 + 9

// replication reads it, of a map of so many nodes and shards, and of a format from 2 on.
func (f *fields) replication(nodes, shards int, format uint8) *Replication {
	r, live, was := &Replication{}, format >= liveFormat, format >= recoveredFormat
	groups := int(f.u16())
	if groups > MaxGroups {
		f.fail(malformed("a shard map of %d groups, at most %d", groups, MaxGroups))
	}
	if f.room(nodes, 16) {
		r.Stores = make([][16]byte, nodes)
		for i := range r.Stores {
			copy(r.Stores[i][:], f.take(16))
			if live {
				r.Zones = append(r.Zones, f.text())
			}
		}
	}
	if f.room(shards, 2) {
		r.Group = make([]uint16, shards)
		for i := range r.Group {
			r.Group[i] = f.u16()
		}
	}
	if live && f.err == nil {
		g := f.group(live, was)
		r.Meta = &g
	}
	for i := 0; i < groups && f.err == nil; i++ {
		r.Groups = append(r.Groups, f.group(live, was))
	}
	if was {
		lives := int(f.u8())
		if lives > MaxGenerations {
			f.fail(malformed("a meta group that was made anew %d times, at most %d", lives, MaxGenerations))
		}
		for i := 0; i < lives && f.err == nil; i++ {
			r.Lives = append(r.Lives, f.u64())
		}
	}
	if format == bornFormat {
		r.Born = f.u64()
		adopts := f.u8()
		if f.err == nil && (adopts > 1 || r.Born == 0) {
			f.fail(malformed("groups that began by map %d, and with what nodes had: %d", r.Born, adopts))
		}
		r.Adopts = adopts == 1
	} else if was && f.err == nil && !r.recovered() {
		f.fail(malformed("a shard map of format %d in which no group was another one", recoveredFormat))
	}
	return r
}

// group reads what appendGroup wrote.
func (f *fields) group(live, was bool) Group {
	g := Group{ID: f.u32()}
	if live {
		g.Top = f.u64()
	}
	if was {
		g.Was, g.Times, g.Phase = f.u32(), f.u16(), Phase(f.u8())
	}
	many := int(f.u8())
	if many > maxInMap {
		f.fail(malformed("group %d of %d replicas, at most %d", g.ID, many, maxInMap))
	}
	for j := 0; j < many && f.err == nil; j++ {
		p := Replica{Node: f.u16(), ID: f.u64()}
		if live {
			leaves := f.u8()
			if leaves > 1 {
				f.fail(malformed("replica %d of group %d leaves: %d", p.ID, g.ID, leaves))
			}
			p.Leaves = leaves == 1
		}
		g.Replicas = append(g.Replicas, p)
	}
	return g
}
