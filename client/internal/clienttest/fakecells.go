package clienttest

import (
	"slices"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// CellsAt is where the cells of a fake node begin, by group: that of group g is g cells behind.
const CellsAt = 32 << 10

// CellOf is the place of a group's cell.
func CellOf(group uint32) layout.Place {
	return layout.PlaceOfByte(CellsAt + uint64(group)*layout.CellSize)
}

// Words gives the nodes memory that may be READ: each has an empty index for all its shards, and of each group a cell of term 1 and configuration 1. The
// voters of a group are its replicas by the map, unless voters names others.
func (r *Replicas) Words(voters ...string) {
	for _, n := range r.Nodes {
		n.Server.Change(func(mem []byte) {
			for shard := range uint16(ClusterShards) {
				seg := SegmentPlace + layout.PlaceOfByte(uint64(shard)*uint64(layout.SegmentBytes(0)))
				n.EmptySegment(mem, seg, shard)
				dir := DirPlace + layout.PlaceOfByte(uint64(shard)*8)
				PutWord(mem[dir.Byte():], layout.MakeDirEntry(seg, 0, 0))
				PutWord(mem[4096+8*uint64(shard):], layout.MakeRoot(dir, 0))
			}
		})
		for _, g := range r.Map.Replication.Groups {
			n.SetCell(g.ID, layout.Cell{Word: 1, Config: 1})
		}
		welcome := n.Welcome
		n.Welcome = func(w *wire.Welcome) {
			welcome(w)
			w.Flags |= wire.WelcomeWords
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.voters = voters
}

// SetCell writes a cell.
func (n *Node) SetCell(group uint32, c layout.Cell) {
	n.Server.Change(func(mem []byte) { WriteCell(mem, group, c) })
}

// WriteCell writes a cell into a node's memory; unlike a real one it may go back.
func WriteCell(mem []byte, group uint32, c layout.Cell) {
	at := CellOf(group).Byte()
	for i, w := range [...]uint64{c.Word, c.Config, c.Ready} {
		PutWord(mem[at+8*uint64(i):], w)
	}
}

// SetPublished writes what a cell says to be published.
func (n *Node) SetPublished(group uint32, index uint64) {
	n.Server.Change(func(mem []byte) { PutWord(mem[layout.CellPublished(CellOf(group)).Byte():], index) })
}

// Store puts an item for a key into the memory of a node, which shows it until it is stored again.
func (r *Replicas) Store(n *Node, key, value string, v layout.Version) {
	shard := r.ShardOf(key)
	seg := SegmentPlace + layout.PlaceOfByte(uint64(shard)*uint64(layout.SegmentBytes(0)))
	n.Server.Change(func(mem []byte) {
		at := ItemsPlace + layout.PlaceOfByte(uint64(v)<<12)
		n.PutItem(mem, seg, at, []byte(key), []byte(value), v)
	})
}

// Told is what a client is told of a group.
type Told struct {
	wire.GroupInfo
	Voters []string
}

// Told says that the client is told nothing else than i of groups by a node; nil: what is so.
func (r *Replicas) Told(n *Node, i *Told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]*Told{}
	}
	r.told[n.ID] = i
}

// Infos are how often nodes were asked for groups.
func (r *Replicas) Infos() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.infos
}

// groupInfo answers what a node has of a group: the leader is ready.
func (r *Replicas) groupInfo(n *Node, h wire.Header, body []byte) []byte {
	m, err := wire.ParseGroupInfoRequest(body)
	if err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.infos++
	i, voters := wire.GroupInfo{Group: m.Group, Cell: uint64(CellOf(m.Group)), Config: 1}, slices.Clone(r.voters)
	if lead := r.lead[m.Group]; lead.Node == n.ID {
		i.Term = lead.Term
	}
	if l := r.lives[m.Group]; l != nil {
		if !slices.Contains(l.voters, n.ID) {
			out := wire.AppendError(nil, h.Type, h.ID, wire.StatusNotFound, "")
			wire.SetCredits(out, 1)
			return out
		}
		i.Config, voters = l.number, l.voters
	}
	for _, g := range r.Map.Replication.Groups {
		for _, p := range g.Replicas {
			if g.ID == m.Group && len(r.voters) == 0 && r.lives == nil {
				voters = append(voters, r.Map.Nodes[p.Node].ID)
			}
		}
	}
	if told := r.told[n.ID]; told != nil {
		i, voters = told.GroupInfo, told.Voters
		i.Group = m.Group
	}
	out := wire.AppendGroupInfo(nil, h.ID, i, voters)
	wire.SetCredits(out, 1)
	return out
}
