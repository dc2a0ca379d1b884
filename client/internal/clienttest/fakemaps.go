package clienttest

import (
	"maps"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A fake cluster that changes while it is used. What is so stands in the logs of its groups: which nodes are voters, who leads. The maps follow, at
// some nodes sooner and at others later, as a test says:
//
//	Grow, Shrink, Reign    change a group, by its log
//	Next                   makes the next map, which no node has yet
//	Inform                 puts it in force at a node
//
// Writes go to the memory of all voters, but for the one that is asleep: it has the words and the values of when it fell asleep, and they may be READ still,
// as those of a node that has no voter any more.

// A lived is how the log of a group has it.
type lived struct {
	number uint64 // of the configuration
	voters []string
	asleep string // one of them; "": none
	index  uint64 // of the newest write
}

// A kept is where the newest value of a key stands in the memory of a node.
type kept struct {
	at      layout.Place
	version layout.Version
}

// Live has the groups change from now on; Words was called before.
func (r *Replicas) Live() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives, r.keyed, r.memory = map[uint32]*lived{}, map[string]int{}, map[[2]string]kept{}
	for _, g := range r.Map.Replication.Groups {
		l := &lived{number: 1}
		for _, p := range g.Replicas {
			l.voters = append(l.voters, r.Map.Nodes[p.Node].ID)
		}
		r.lives[g.ID] = l
		r.tellLocked(g.ID)
	}
	for _, n := range r.Nodes {
		for id, l := range r.lives {
			if !slices.Contains(l.voters, n.ID) {
				n.SetCell(id, layout.Cell{})
			}
		}
	}
}

// node is the node of that name.
func (r *Replicas) node(id string) *Node {
	return r.Nodes[slices.IndexFunc(r.Nodes, func(n *Node) bool { return n.ID == id })]
}

// Voters are the nodes with a replica of a group, by its log.
func (r *Replicas) Voters(group uint32) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lives[group].voters)
}

// hasLocked reports whether a node has a replica of a group.
func (r *Replicas) hasLocked(node string, g *cluster.Group) bool {
	if r.lives != nil {
		return slices.Contains(r.lives[g.ID].voters, node)
	}
	return g.At(r.Map.IndexOf(node)) != 0
}

// tellLocked has the cells of all voters that are awake say what is so.
func (r *Replicas) tellLocked(group uint32) {
	l, lead := r.lives[group], r.lead[group]
	for _, id := range l.voters {
		if id == l.asleep {
			continue
		}
		c := layout.Cell{Word: lead.Term, Config: l.number}
		if id == lead.Node {
			c.Ready = lead.Term
		}
		r.node(id).SetCell(group, c)
		r.node(id).SetPublished(group, l.index)
	}
}

// Grow gives a group another voter, which has all that the others have.
func (r *Replicas) Grow(group uint32, n *Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[group]
	if slices.Contains(l.voters, n.ID) {
		return
	}
	r.fillLocked(group, n)
	l.number++
	l.voters = append(slices.Clone(l.voters), n.ID)
	r.tellLocked(group)
}

// Shrink takes a voter from a group, and has another one lead if it has led. Its memory stays as it is, but for its word.
func (r *Replicas) Shrink(group uint32, n *Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[group]
	left := slices.DeleteFunc(slices.Clone(l.voters), func(id string) bool { return id == n.ID })
	if len(left) == 0 || len(left) == len(l.voters) {
		return
	}
	if l.asleep == n.ID {
		l.asleep = ""
	}
	l.number++
	l.voters = left
	if r.lead[group].Node == n.ID {
		next := left[slices.IndexFunc(left, func(id string) bool { return id != l.asleep })]
		r.lead[group] = Led{Node: next, Term: r.lead[group].Term + 1}
	}
	n.SetCell(group, layout.Cell{Word: ^uint64(0)})
	r.tellLocked(group)
}

// Reign has a voter lead a group in the next term. asleep is another voter, which does not notice and lacks what is written from then on, until
// the next Reign; "": none.
func (r *Replicas) Reign(group uint32, node, asleep string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[group]
	if l.asleep != "" {
		r.fillLocked(group, r.node(l.asleep))
	}
	if l.asleep = ""; slices.Contains(l.voters, asleep) && len(l.voters) > 2 && asleep != node {
		l.asleep = asleep
	}
	r.lead[group] = Led{Node: node, Term: r.lead[group].Term + 1}
	r.tellLocked(group)
}

// writtenLocked puts a value into the memory of the voters, that of the leader first.
func (r *Replicas) writtenLocked(group uint32, key, value string) {
	l := r.lives[group]
	l.index++
	for _, id := range slices.Insert(slices.Clone(l.voters), 0, r.lead[group].Node) {
		if id != l.asleep && slices.Contains(l.voters, id) {
			r.storeLocked(r.node(id), key, value, layout.Version(l.index+1))
			r.node(id).SetPublished(group, l.index)
		}
	}
}

// fillLocked gives a node all that a group has.
func (r *Replicas) fillLocked(group uint32, n *Node) {
	l := r.lives[group]
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		if r.GroupOf(key).ID == group {
			r.storeLocked(n, key, r.data[key], layout.Version(l.index+1))
		}
	}
	n.SetPublished(group, l.index)
}

// places is how many places a key has in the memory of a node, in turn, MostKeys how many keys may be written.
const (
	places   = 16
	MostKeys = ItemBytes>>12/places - 1
)

// storeLocked puts an item for a key into the memory of a node, and makes the one before it dead.
func (r *Replicas) storeLocked(n *Node, key, value string, v layout.Version) {
	i, is := r.keyed[key]
	if !is {
		i = len(r.keyed)
		r.keyed[key] = i
	}
	old := r.memory[[2]string{n.ID, key}]
	at := ItemsPlace + layout.PlaceOfByte(uint64(i*places+int(v)%places)<<12)
	if old.version >= v { // it has it
		return
	}
	r.memory[[2]string{n.ID, key}] = kept{at, v}
	n.Server.Change(func(mem []byte) {
		if old.version != 0 {
			layout.SetState(mem[old.at.Byte():], old.version, layout.Dead)
		}
		n.PutItem(mem, r.segmentOf(key), at, []byte(key), []byte(value), v)
	})
}

// segmentOf is where the index of a key is, in the memory of each node.
func (r *Replicas) segmentOf(key string) layout.Place {
	return SegmentPlace + layout.PlaceOfByte(uint64(r.ShardOf(key))*uint64(layout.SegmentBytes(0)))
}

// Distinct are n keys that have slots of their own in the fakes' index, which is small.
func Distinct(r *Replicas, n int) (keys []string) {
	taken := map[uint64]bool{}
	for i := 0; len(keys) < n; i++ {
		key := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if at := SlotAt(r.segmentOf(key), []byte(key)); !taken[at] {
			taken[at] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// Next makes the next map, as change has it: m and r are copies. Replicas that are new have the id 0, and are given one.
func (r *Replicas) Next(change func(m *cluster.Map, l *cluster.Replication)) *cluster.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Map = NextMap(r.Map, change)
	return r.Map
}

// NextMap is the map behind m, likewise. It panics if there can be no such map.
func NextMap(m *cluster.Map, change func(m *cluster.Map, l *cluster.Replication)) *cluster.Map {
	next, l := *m, *m.Replication
	next.Version++
	next.Nodes, next.Owner, l.Stores, l.Groups = slices.Clone(m.Nodes), slices.Clone(m.Owner), slices.Clone(l.Stores), slices.Clone(l.Groups)
	for i := range l.Groups {
		l.Groups[i].Replicas = slices.Clone(l.Groups[i].Replicas)
	}
	next.Replication = &l
	change(&next, &l)
	for i := range l.Groups {
		for j := range l.Groups[i].Replicas {
			if p := &l.Groups[i].Replicas[j]; p.ID == 0 {
				p.ID = next.Version * cluster.MaxReplicas * 2 // ids rise
				p.ID += uint64(j)
			}
		}
	}
	for shard, g := range l.Group {
		next.Owner[shard] = l.Groups[g].Replicas[0].Node
	}
	if err := cluster.CheckChange(m, &next); err != nil {
		panic(err)
	}
	return &next
}

// ByLogs is a change for Next: the map of the nodes that are named, with the replicas that the logs have; those that lead come first.
func (r *Replicas) ByLogs(nodes ...string) func(m *cluster.Map, l *cluster.Replication) {
	slices.Sort(nodes)
	return func(m *cluster.Map, l *cluster.Replication) {
		before := *m
		stores := l.Stores
		m.Nodes, l.Stores = nil, nil
		for _, id := range nodes {
			node, store := cluster.MapNode{ID: id, Weight: 1}, [16]byte{200, byte(r.node(id).Incarnation)}
			if i := before.IndexOf(id); i >= 0 {
				node, store = before.Nodes[i], stores[i]
			}
			m.Nodes, l.Stores = append(m.Nodes, node), append(l.Stores, store)
		}
		for i := range l.Groups {
			g := &l.Groups[i]
			was := g.Replicas
			g.Replicas = nil
			for _, id := range r.lives[g.ID].voters {
				p := cluster.Replica{Node: uint16(m.IndexOf(id))}
				for _, o := range was {
					if before.Nodes[o.Node].ID == id {
						p.ID = o.ID
					}
				}
				if g.Replicas = append(g.Replicas, p); id == r.lead[g.ID].Node {
					last := len(g.Replicas) - 1
					g.Replicas[0], g.Replicas[last] = g.Replicas[last], g.Replicas[0]
				}
			}
		}
	}
}

// Inform puts the newest map in force at a node, which shows by its beat that there is news.
func (r *Replicas) Inform(n *Node) {
	r.mu.Lock()
	m := r.Map
	r.mu.Unlock()
	n.Set(func(n *Node) {
		n.Map = m
		v := *n.View
		v.Version++
		n.View = &v
	})
	n.Server.Mu.Lock()
	n.Server.View++
	n.Server.Mu.Unlock()
	n.Tick()
}

// Tick has a server's beat go on.
func (f *Server) Tick() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.beats++
	f.BeatLocked(f.beats + 1)
}

// Connected is how many connections the server has.
func (f *Server) Connected() (n int) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, q := range f.QPs {
		select {
		case <-q.done:
		default:
			n++
		}
	}
	return n
}
