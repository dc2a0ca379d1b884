package client

import (
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A group is keys that are got together. A key whose place is remembered is a READ
// of that place and nothing else; only if the key is not there does it get a lookup
// of its own, as those do whose place is not known. The group is pooled: what a key
// costs beside its READ and its value is some hundred nanoseconds.
type group struct {
	s       *session
	v       *view
	p       *patience
	keys    [][]byte
	results []Result

	// Of remembered places: loaded before their first READ (rules F4, F12).
	grant *grant
	low   uint64

	members []member
	item    layout.ItemView
	hits    int // found by one READ since the counters were raised last
	broken  bool
}

// member is one key of a group.
type member struct {
	i     int // index in keys
	first int // its first READ in the batch under way, -1: none
	state layout.Action
	hash  layout.Hash
	loc   layout.Loc // where it is remembered to be
	g     *get       // its lookup, if it needs one
}

var groupPool = sync.Pool{New: func() any { return &group{members: make([]member, 0, groupKeys)} }}

// getGroup gets the keys of a group one-sidedly. It returns the indexes of those
// that did not work out, to be got singly, which has all the ways of a get; and
// whether regions have been learned that some of them were missing. It fails if
// there is no session to be had.
func (c *peer) getGroup(p *patience, keys [][]byte, results []Result, which []int) (rest []int, learned bool, err error) {
	s, err := c.session(p)
	if err != nil {
		return which, false, err
	}
	if s.sendOnly || s.lease.lapsed.Load() {
		return which, false, nil
	}
	s.lease.used.Store(true)
	gr := groupPool.Get().(*group)
	*gr = group{
		s: s, v: s.view.Load(), p: p, keys: keys, results: results,
		grant: s.lease.current.Load(), low: s.time.low.Load(), members: gr.members[:0],
	}
	for _, i := range which {
		gr.join(i)
	}
	gr.run()
	strange := false
	for i := range gr.members {
		m := &gr.members[i]
		if results[m.i].Value == nil && results[m.i].Err == nil {
			rest = append(rest, m.i)
			strange = strange || m.g != nil && m.state == layout.ActionAsk && m.g.lookup.Reason == layout.ReasonUnknownRegion
		}
		if m.g != nil {
			m.g.release()
			getPool.Put(m.g)
		}
	}
	version := gr.v.Version
	members := gr.members
	clear(members)
	*gr = group{members: members[:0]}
	groupPool.Put(gr)
	return rest, strange && s.learnRegions(p, version), nil
}

// join makes a key a member.
func (gr *group) join(i int) {
	s, key := gr.s, gr.keys[i]
	if err := checkKey(key); err != nil {
		gr.results[i].Err = s.c.fail("get", key, s.addr, err)
		return
	}
	m := member{i: i, first: -1, state: layout.ActionRead, hash: layout.HashKey(gr.v.Seed, key)}
	loc, dropped := s.cache.find(m.hash, gr.grant.retired)
	if dropped > 0 {
		s.c.n.reclaimDropped.Add(uint64(dropped))
	}
	switch m.loc = loc; {
	case loc.Size == 0:
		s.c.n.cacheMisses.Add(1)
		gr.look(&m)
	case loc.Size > maxItemRead:
		m.state = layout.ActionAsk // large: got singly
	default:
		s.c.n.cacheHits.Add(1)
	}
	gr.members = append(gr.members, m)
}

// look gives a member a lookup, which begins at the index.
func (gr *group) look(m *member) {
	m.loc = layout.Loc{}
	m.g = getPool.Get().(*get)
	gr.s.startAt(m.g, gr.v, gr.keys[m.i], m.hash, layout.Loc{}, gr.s.lease.current.Load())
	m.state = m.g.lookup.Step()
}

// maxParts is how many batches of a group are under way at a time.
const maxParts = groupKeys / partKeys

// run READs until nobody asks for anything any more, the session is lost, or the
// time is over.
func (gr *group) run() {
	for asking := true; asking && !gr.broken; {
		asking = false
		var under [maxParts]*batch
		n := 0
		for from := 0; from < len(gr.members) && !gr.broken; from += partKeys {
			part := gr.members[from:min(from+partKeys, len(gr.members))]
			b := gr.gather(part)
			if b == nil {
				continue
			}
			asking = true
			// Who has READs under way waits for neither memory nor space.
			if n > 0 && !b.reserve() {
				gr.settle(&under)
				n = 0
			}
			b.lone = n == 0 && from+partKeys >= len(gr.members) // it is waited for at once
			if err := b.post(gr.p); err != nil {
				gr.broken = true
				if !errors.Is(err, errAbandoned) {
					b.release()
				}
				break
			}
			under[from/partKeys] = b
			n++
		}
		gr.settle(&under)
	}
}

// settle waits for the batches under way, the oldest first, and lets the members
// look at what came.
func (gr *group) settle(under *[maxParts]*batch) {
	for k, b := range under {
		if b == nil {
			continue
		}
		under[k] = nil
		mine, err := b.wait(gr.p)
		if err != nil {
			gr.broken = true
			if mine {
				b.release()
			}
			continue
		}
		from := k * partKeys
		gr.step(b, gr.members[from:min(from+partKeys, len(gr.members))])
		b.release()
	}
}

// gather makes a batch of what members ask for, as far as it fits; the others have
// their turn in the next one. It is nil if nobody asks.
func (gr *group) gather(members []member) (b *batch) {
	s := gr.s
	for i := range members {
		members[i].first = -1 // those behind a full batch are not in it
	}
	for i := range members {
		m := &members[i]
		if m.state != layout.ActionRead {
			continue
		}
		if b == nil {
			b = s.newBatch(gr.v)
		}
		if m.g == nil {
			if b.full(s, 1, int(m.loc.Size)) {
				break
			}
			m.first = len(b.at)
			if _, err := b.add(m.loc.Place, int(m.loc.Size)); err != nil {
				m.state = layout.ActionAsk // a region we do not know
			}
			continue
		}
		reads := m.g.lookup.Reads
		bytes := 0
		for _, r := range reads {
			bytes += int(r.Len)
		}
		if b.full(s, len(reads), bytes) {
			break
		}
		m.first = len(b.at)
		for _, r := range reads {
			if _, err := b.add(r.Place, int(r.Len)); err != nil {
				m.state = layout.ActionAsk
				break
			}
		}
	}
	if b == nil || len(b.at) == 0 {
		if b != nil {
			b.release()
		}
		return nil
	}
	if l := &s.lease; l.due.Load() && l.due.CompareAndSwap(true, false) {
		b.addBeat()
	}
	return b
}

// full reports that n more READs of so many bytes do not go into the batch; one
// that is empty takes whatever a lookup asks for.
func (b *batch) full(s *session, n, bytes int) bool {
	return len(b.at) > 0 && (len(b.at)+n > min(groupReads, s.t.maxReads-1) || b.total+bytes > groupBytes)
}

// step lets every member look at what came for it.
func (gr *group) step(b *batch, members []member) {
	s := gr.s
	now := b.handled() // one reading per batch, after the poll
	for i := range members {
		m := &members[i]
		switch {
		case m.state != layout.ActionRead || m.first < 0:
		case m.g == nil:
			gr.stepPlace(m, b.bytes(m.first), now)
		default:
			gr.stepLookup(m, b, now)
		}
	}
	if n := uint64(gr.hits); n > 0 {
		s.c.n.gets.Add(n)
		gr.hits = 0
	}
}

// stepPlace looks at what stood at a remembered place.
func (gr *group) stepPlace(m *member, buf []byte, now int64) {
	s, item := gr.s, &gr.item
	if !item.Accept(buf, s.incarnation, m.loc.Place, gr.keys[m.i]) {
		s.c.n.cacheStale.Add(1)
		gr.look(m)
		return
	}
	if m.state = layout.ActionFound; !gr.holds(gr.grant, m, now) {
		return
	}
	if item.Chunks > 0 {
		m.state = layout.ActionAsk // large: got singly
		return
	}
	switch s.judgeExpiry(item, gr.low, now) {
	case expiryAsk:
		m.state = layout.ActionAsk
	case expiryPassed:
		m.absent(s, gr.keys[m.i], gr.results)
	default:
		gr.found(m, item)
		s.touches.hit(s.c.n.hits.Add(1), m.hash)
	}
}

// stepLookup lets a lookup go on.
func (gr *group) stepLookup(m *member, b *batch, now int64) {
	s, l := gr.s, &m.g.lookup
	for j := range l.Reads {
		l.Reads[j].Buf = b.bytes(m.first + j)
	}
	if m.state = l.Step(); m.state == layout.ActionRead {
		return
	}
	s.count(&l.Counts)
	switch {
	case m.state == layout.ActionAsk:
		s.askFor(l.Reason)
		return
	case !gr.holds(m.g.grant, m, now):
		return
	case m.state == layout.ActionAbsent:
		m.absent(s, gr.keys[m.i], gr.results)
		return
	}
	item, loc := l.Found()
	switch s.judgeExpiry(&item, m.g.low, now) {
	case expiryAsk:
		m.state = layout.ActionAsk
		return
	case expiryPassed:
		m.absent(s, gr.keys[m.i], gr.results)
		return
	}
	s.cache.put(m.hash, loc, m.g.grant.retired)
	if item.Chunks > 0 {
		m.state = layout.ActionAsk // large: got singly
		return
	}
	gr.found(m, &item)
	s.hit(m.g)
}

// holds decides by the lease whether an answer counts.
func (gr *group) holds(g *grant, m *member, now int64) bool {
	if gr.s.lease.holds(g, now) {
		return true
	}
	gr.s.c.n.expired.Add(1)
	m.state = layout.ActionAsk
	return false
}

func (gr *group) found(m *member, item *layout.ItemView) {
	gr.hits++
	gr.results[m.i].Value = append(make([]byte, 0, item.ValLen), item.Value()...)
}

// absent notes that the member's key does not exist, if this server can know.
func (m *member) absent(s *session, key []byte, results []Result) {
	s.cache.drop(m.hash)
	if !s.owns(key) {
		m.state = layout.ActionAsk
		return
	}
	s.c.n.gets.Add(1)
	s.c.n.misses.Add(1)
	results[m.i].Err = &Error{Op: "get", Server: s.addr, Node: s.node, Key: quoteKey(key), Err: ErrNotFound}
}
