package client

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Many keys at once. MultiGet steps the lookups of many keys together and READs
// what they ask for with one doorbell, so that a hundred keys cost as many round
// trips as one. MultiPut keeps as many requests under way as there are credits,
// from one goroutine.

const (
	// groupKeys is how many lookups are stepped together.
	groupKeys = 128
	// groupReads and groupBytes bound one batch of theirs.
	groupReads = 128
	groupBytes = readWindow - layout.PageSize
	// groupAsks is how many keys of one call go by SEND at a time.
	groupAsks = 16
)

// MultiGet gets many keys. Result i is that of keys[i]: a value, ErrNotFound, or
// why that key was not answered. The error is nil if every key was answered.
// Otherwise it is the first Err that is neither nil nor ErrNotFound or, in a
// cluster, a *PartialError that names the nodes; what others have answered counts.
// The keys are not of one moment; each one is as Get would have answered during
// the call. The nodes of a cluster are asked side by side, each once for all of
// its keys.
func (c *Client) MultiGet(ctx context.Context, keys [][]byte) ([]Result, error) {
	results := make([]Result, len(keys))
	if c.fleet != nil {
		return results, c.fleet.multiGet(ctx, keys, results)
	}
	c.solo.multiGet(ctx, keys, results, upTo(len(keys)))
	for i := range results {
		if err := results[i].Err; err != nil && !errors.Is(err, ErrNotFound) {
			return results, err
		}
	}
	return results, nil
}

// upTo returns 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// multiGet gets the keys of which the indexes are given at one server.
func (c *peer) multiGet(ctx context.Context, keys [][]byte, results []Result, which []int) {
	var rest []int // to be got one by one
	for begin := 0; begin < len(which); begin += groupKeys {
		group := which[begin:min(begin+groupKeys, len(which))]
		p := c.begin(ctx) // Config.Timeout is for a group, not for any number of keys
		left, learned, err := c.getGroup(&p, keys, results, group)
		if err != nil { // nobody is there: it would be so for each of the others, too
			for _, i := range which[begin:] {
				results[i].Err = c.fail("get", keys[i], "", err)
			}
			break
		}
		if learned { // a newer view: once more
			left, _, _ = c.getGroup(&p, keys, results, left)
		}
		rest = append(rest, left...)
	}
	c.getRest(ctx, keys, results, rest)
}

// member is one key of a group.
type member struct {
	g     *get
	i     int // index in keys
	first int // its first READ in the batch
	state layout.Action
}

// getGroup gets the keys of a group one-sidedly. It returns the indexes of those
// that did not work out, to be got singly, which has all the ways of a get; and
// whether regions have been learned that some of them were missing. It fails if
// there is no session to be had.
func (c *peer) getGroup(p *patience, keys [][]byte, results []Result, group []int) (rest []int, learned bool, err error) {
	s, err := c.session(p)
	if err != nil {
		return group, false, err
	}
	if s.sendOnly || s.lease.lapsed.Load() {
		return group, false, nil
	}
	s.lease.used.Store(true)
	v := s.view.Load()
	members := make([]member, 0, len(group))
	for _, i := range group {
		if err := checkKey(keys[i]); err != nil {
			results[i].Err = c.fail("get", keys[i], s.addr, err)
			continue
		}
		m := member{g: getPool.Get().(*get), i: i}
		s.start(m.g, v, keys[i])
		m.state = m.g.lookup.Step()
		members = append(members, m)
	}
	for {
		batch := s.gather(p, v, members)
		if batch == nil {
			break
		}
		c.stepGroup(s, batch, keys, members, results)
		batch.release()
	}
	strange := false
	for i := range members {
		m := &members[i]
		if results[m.i].Value == nil && results[m.i].Err == nil {
			rest = append(rest, m.i)
			strange = strange || m.state == layout.ActionAsk && m.g.lookup.Reason == layout.ReasonUnknownRegion
		}
		m.g.release()
		getPool.Put(m.g)
	}
	return rest, strange && s.learnRegions(p, v.Version), nil
}

// gather READs for as many members as fit into one batch; the others have their
// turn in the next one. It returns nil when nobody asks for anything any more,
// the session is lost, or the time is over.
func (s *session) gather(p *patience, v *view, members []member) (b *batch) {
	for i := range members {
		members[i].first = -1 // those behind a full batch are not in it
	}
	for i := range members {
		m := &members[i]
		if m.state != layout.ActionRead {
			continue
		}
		if b == nil {
			b = s.newBatch(v)
		}
		reads := m.g.lookup.Reads
		bytes := 0
		for _, r := range reads {
			bytes += int(r.Len)
		}
		if len(b.at) > 0 && (len(b.at)+len(reads) > min(groupReads, s.t.maxReads-1) || b.total+bytes > groupBytes) {
			break
		}
		m.first = len(b.at)
		for _, r := range reads {
			if _, err := b.add(r.Place, int(r.Len)); err != nil {
				m.state = layout.ActionAsk // a region we do not know
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
	mine, err := b.run(p)
	if err != nil {
		if mine {
			b.release()
		}
		return nil
	}
	return b
}

// stepGroup lets every member look at what came for it.
func (c *peer) stepGroup(s *session, b *batch, keys [][]byte, members []member, results []Result) {
	now := s.now() // one reading per batch, after the poll
	for i := range members {
		m := &members[i]
		if m.state != layout.ActionRead || m.first < 0 {
			continue
		}
		for j := range m.g.lookup.Reads {
			m.g.lookup.Reads[j].Buf = b.bytes(m.first + j)
		}
		m.state = m.g.lookup.Step()
		if m.state == layout.ActionRead {
			continue
		}
		s.count(&m.g.lookup.Counts)
		if m.state == layout.ActionAsk {
			s.askFor(m.g.lookup.Reason)
			continue
		}
		if !s.lease.holds(m.g.grant, now) {
			c.n.expired.Add(1)
			m.state = layout.ActionAsk
			continue
		}
		if m.state == layout.ActionAbsent {
			m.absent(s, keys[m.i], results)
			continue
		}
		item, loc := m.g.lookup.Found()
		if v := s.judgeExpiry(&item, m.g.low, now); v == expiryAsk {
			m.state = layout.ActionAsk
			continue
		} else if v == expiryPassed {
			m.absent(s, keys[m.i], results)
			continue
		}
		if loc.Place != m.g.cached.Place || loc.Size > m.g.cached.Size {
			s.cache.put(m.g.hash, loc, m.g.grant.retired)
		}
		if item.Chunks > 0 {
			m.state = layout.ActionAsk // large: got singly
			continue
		}
		c.n.gets.Add(1)
		s.hit(m.g)
		results[m.i].Value = append(make([]byte, 0, item.ValLen), item.Value()...)
	}
}

// absent notes that the member's key does not exist, if this server can know.
func (m *member) absent(s *session, key []byte, results []Result) {
	s.cache.drop(m.g.hash)
	if !s.owns(key) {
		m.state = layout.ActionAsk
		return
	}
	s.c.n.gets.Add(1)
	s.c.n.misses.Add(1)
	results[m.i].Err = &Error{Op: "get", Server: s.addr, Node: s.node, Key: quoteKey(key), Err: ErrNotFound}
}

// getRest gets single keys, a few at a time.
func (c *peer) getRest(ctx context.Context, keys [][]byte, results []Result, rest []int) {
	if len(rest) == 0 {
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(groupAsks, len(rest)) {
		wg.Go(func() {
			for i := range next {
				w := want{n: -1, dst: []byte{}}
				if err := c.get(ctx, "get", keys[i], &w); err != nil {
					results[i].Err = err
				} else {
					results[i].Value = w.dst
				}
			}
		})
	}
	for _, i := range rest {
		next <- i
	}
	close(next)
	wg.Wait()
}
