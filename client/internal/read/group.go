package read

import (
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A group is keys that are got together. A key whose place is remembered is a READ
// of that place and nothing else; only if the key is not there does it get a lookup
// of its own, as those do whose place is not known. The group is pooled: what a key
// costs beside its READ and its value is some hundred nanoseconds.
type group struct {
	c       *peer.Peer
	s       *session.Session
	v       *session.View
	p       *base.Limit
	keys    [][]byte
	results []base.Result

	// Of remembered places: loaded before their first READ.
	grant *session.Grant
	low   uint64

	words    *vouchers // of replicated keys; nil: they are not, or need none
	replicas bool      // the keys are replicated

	part    int // keys that share a batch
	members []member
	item    layout.ItemView
	room    arena // for values
	hits    int   // found by one READ since the counters were raised last
	broken  bool
}

// member is one key of a group.
type member struct {
	i       int // index in keys
	voucher int // of a replicated key
	first   int // its first READ in the batch under way, -1: none
	state   layout.Action
	hash    layout.Hash
	loc     layout.Loc // where it is remembered to be
	g       *attempt   // its lookup, if it needs one
}

var groupPool = sync.Pool{New: func() any { return &group{members: make([]member, 0, groupKeys)} }}

// getGroup gets the keys of a group one-sidedly. It returns the indexes of those
// that did not work out, to be got singly, which has all the ways of a get; and
// whether regions have been learned that some of them were missing. It fails if
// there is no session to be had.
func getGroup(c *peer.Peer, p *base.Limit, keys [][]byte, results []base.Result, which []int) (rest []int, learned bool, err error) {
	s, err := c.Session(p)
	if err != nil {
		return which, false, err
	}
	if s.BySend || s.Lease.IsLapsed() {
		return which, false, nil
	}
	rest, learned = groupOn(c, nil, false, p, s, keys, results, which)
	return rest, learned, nil
}

// groupOn is getGroup on a session. words are those of the keys, if they are replicated; nil: the keys have no replicas, or the session's is known to be new
// enough (bounded).
func groupOn(c *peer.Peer, words *vouchers, bounded bool, p *base.Limit, s *session.Session, keys [][]byte, results []base.Result, which []int) (rest []int, learned bool) {
	s.Lease.Use()
	gr := groupPool.Get().(*group)
	*gr = group{
		c: c, s: s, v: s.View(), p: p, keys: keys, results: results,
		grant: s.Lease.Grant(), low: s.Time.Low(), members: gr.members[:0],
		part: doorbellKeys, words: words, replicas: words != nil || bounded,
	}
	if s.Device.Software {
		gr.part = partKeys
	}
	for _, i := range which {
		gr.join(i)
	}
	gr.room.more = len(gr.members)
	gr.run()
	if words != nil {
		gr.vouched()
	}
	unknownRegion := false
	for i := range gr.members {
		m := &gr.members[i]
		if results[m.i].Err == errPending {
			rest = append(rest, m.i)
			unknownRegion = unknownRegion || m.g != nil && m.state == layout.ActionAsk && m.g.lookup.Reason == layout.ReasonUnknownRegion
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
	return rest, unknownRegion && s.LearnRegions(p, version)
}

// vouched takes back the answers for which nothing vouches: their keys are got again.
func (gr *group) vouched() {
	gr.words.settle(gr.p)
	for i := range gr.members {
		m := &gr.members[i]
		o := &gr.words.led[m.voucher]
		if o.holds() {
			continue
		}
		gr.s.Counts.FallbackWords.Add(1)
		if r := &gr.results[m.i]; m.state == layout.ActionFound || m.state == layout.ActionAbsent {
			r.Value, r.Err = r.Value[:0], errPending
			m.state = layout.ActionAsk
		}
	}
}

// join makes a key a member.
func (gr *group) join(i int) {
	s, key := gr.s, gr.keys[i]
	if err := base.CheckKey(key); err != nil {
		gr.results[i].Err = gr.c.Fail("get", key, s.Addr, err)
		return
	}
	m := member{i: i, first: -1, state: layout.ActionRead, hash: layout.HashKey(gr.v.Seed, key)}
	if gr.words != nil {
		if m.voucher = gr.words.of[i]; gr.words.led[m.voucher].leader != s {
			m.state = layout.ActionAsk
			gr.members = append(gr.members, m)
			return
		}
	}
	loc, dropped := s.Cache.Find(m.hash, gr.grant.Retired)
	if dropped > 0 {
		s.Counts.ReclaimDropped.Add(uint64(dropped))
	}
	switch m.loc = loc; {
	case loc.Size == 0:
		s.Counts.CacheMisses.Add(1)
		gr.look(&m)
	case loc.Size > maxItemRead:
		m.state = layout.ActionAsk // large: got singly
	default:
		s.Counts.CacheHits.Add(1)
	}
	gr.members = append(gr.members, m)
}

// look gives a member a lookup, which begins at the index.
func (gr *group) look(m *member) {
	m.loc = layout.Loc{}
	m.g = getPool.Get().(*attempt)
	startAt(gr.s, m.g, gr.v, gr.keys[m.i], m.hash, layout.Loc{}, gr.s.Lease.Grant())
	m.state = m.g.lookup.Step()
}

// maxParts is how many batches of a group are under way at a time, at most.
const maxParts = groupKeys / partKeys

// run READs until no member asks for anything any more, the session is lost, or the
// time is over.
func (gr *group) run() {
	for asking := true; asking && !gr.broken; {
		asking = false
		var under [maxParts]*session.Reads
		n := 0
		for from := 0; from < len(gr.members) && !gr.broken; from += gr.part {
			part := gr.members[from:min(from+gr.part, len(gr.members))]
			b := gr.gather(part)
			if b == nil {
				continue
			}
			asking = true
			// A group that has READs under way waits for neither memory nor space: groups that
			// do so together would wait for each other.
			if (n > 0 || gr.words != nil) && !b.Reserve() {
				gr.settle(&under)
				n = 0
				if gr.words != nil {
					gr.words.settle(gr.p)
				}
			}
			b.Lone = n == 0 && from+gr.part >= len(gr.members) // it is waited for at once
			if err := b.Post(gr.p); err != nil {
				gr.broken = true
				if !errors.Is(err, session.ErrAbandoned) {
					b.Release()
				}
				break
			}
			under[from/gr.part] = b
			n++
		}
		gr.settle(&under)
	}
}

// settle waits for the batches under way, the oldest first, and lets the members
// look at what came.
func (gr *group) settle(under *[maxParts]*session.Reads) {
	for k, b := range under {
		if b == nil {
			continue
		}
		under[k] = nil
		mine, err := b.Wait(gr.p)
		if err != nil {
			gr.broken = true
			if mine {
				b.Release()
			}
			continue
		}
		from := k * gr.part
		gr.step(b, gr.members[from:min(from+gr.part, len(gr.members))])
		b.Release()
	}
}

// gather makes a batch of what members ask for, as far as it fits; the others have
// their turn in the next one. It is nil if no member asks.
func (gr *group) gather(members []member) (b *session.Reads) {
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
			b = s.NewReads(gr.v)
		}
		if m.g == nil {
			if b.Full(1, int(m.loc.Size), groupReads, groupBytes) {
				break
			}
			m.first = b.Len()
			if _, err := b.Add(m.loc.Place, int(m.loc.Size)); err != nil {
				m.state = layout.ActionAsk // a region we do not know
			}
			continue
		}
		reads := m.g.lookup.Reads
		bytes := 0
		for _, r := range reads {
			bytes += int(r.Len)
		}
		if b.Full(len(reads), bytes, groupReads, groupBytes) {
			break
		}
		m.first = b.Len()
		for _, r := range reads {
			if _, err := b.Add(r.Place, int(r.Len)); err != nil {
				m.state = layout.ActionAsk
				break
			}
		}
	}
	if b == nil || b.Len() == 0 {
		if b != nil {
			b.Release()
		}
		return nil
	}
	if s.Lease.TakeDue() {
		b.AddBeat()
	}
	return b
}

// step lets every member look at what came for it.
func (gr *group) step(b *session.Reads, members []member) {
	s := gr.s
	now := b.Handled() // one reading per batch, after the poll
	for i := range members {
		m := &members[i]
		switch {
		case m.state != layout.ActionRead || m.first < 0:
		case m.g == nil:
			gr.stepPlace(m, b.Bytes(m.first), now)
		default:
			gr.stepLookup(m, b, now)
		}
	}
	if n := uint64(gr.hits); n > 0 {
		s.Counts.Gets.Add(n)
		gr.hits = 0
	}
}

// stepPlace looks at what stood at a remembered place.
func (gr *group) stepPlace(m *member, buf []byte, now int64) {
	s, key := gr.s, gr.keys[m.i]
	item, whole := layout.AcceptWhole(buf, s.Incarnation, m.loc.Place, key)
	if !whole {
		if gr.item.Accept(buf, s.Incarnation, m.loc.Place, key) {
			m.state = layout.ActionAsk // large: got singly
			return
		}
		s.Counts.CacheStale.Add(1)
		gr.look(m)
		return
	}
	if m.state = layout.ActionFound; !gr.holds(gr.grant, m, now) {
		return
	}
	switch judgeExpiry(s, item.Expiry, gr.low, now, gr.replicas) {
	case session.ExpiryAsk:
		m.state = layout.ActionAsk
	case session.ExpiryPassed:
		gr.absent(m)
	default:
		gr.found(m, buf[item.From:item.To])
		s.Touches.Hit(s.Counts.Hits.Add(1), m.hash)
	}
}

// stepLookup lets a lookup go on.
func (gr *group) stepLookup(m *member, b *session.Reads, now int64) {
	s, l := gr.s, &m.g.lookup
	for j := range l.Reads {
		l.Reads[j].Buf = b.Bytes(m.first + j)
	}
	if m.state = l.Step(); m.state == layout.ActionRead {
		return
	}
	countLookup(s, &l.Counts)
	switch {
	case m.state == layout.ActionAsk:
		countFallback(s, l.Reason)
		return
	case !gr.holds(m.g.grant, m, now):
		return
	case m.state == layout.ActionAbsent:
		gr.absent(m)
		return
	}
	item, loc := l.Found()
	switch judgeExpiry(s, item.Expiry, m.g.low, now, gr.replicas) {
	case session.ExpiryAsk:
		m.state = layout.ActionAsk
		return
	case session.ExpiryPassed:
		gr.absent(m)
		return
	}
	s.Cache.Put(m.hash, loc, m.g.grant.Retired)
	if item.Chunks > 0 {
		m.state = layout.ActionAsk // large: got singly
		return
	}
	gr.found(m, item.Value())
	countHit(s, m.g)
}

// holds decides by the lease whether an answer counts.
func (gr *group) holds(g *session.Grant, m *member, now int64) bool {
	if gr.s.Lease.Holds(g, now) {
		return true
	}
	gr.s.Counts.LeaseExpired.Add(1)
	m.state = layout.ActionAsk
	return false
}

func (gr *group) found(m *member, value []byte) {
	gr.hits++
	r := &gr.results[m.i]
	r.Value, r.Err = append(gr.room.of(r.Value, len(value)), value...), nil
}

// absent notes that the member's key does not exist, if this server can know.
func (gr *group) absent(m *member) {
	s, key := gr.s, gr.keys[m.i]
	s.Cache.Drop(m.hash)
	if !gr.replicas && !gr.c.Owns(s, key) {
		m.state = layout.ActionAsk
		return
	}
	s.Counts.Gets.Add(1)
	s.Counts.Misses.Add(1)
	gr.results[m.i].Err = &base.Error{Op: "get", Server: s.Addr, Node: s.Node, Key: base.QuoteKey(key), Err: base.ErrNotFound}
}
