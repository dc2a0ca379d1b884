package client

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/internal/wire"
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
// why that key was not answered. The error is the first Err that is neither nil
// nor ErrNotFound: nil means that every key was answered. The keys are not of
// one moment; each one is as Get would have answered during the call.
func (c *Client) MultiGet(ctx context.Context, keys [][]byte) ([]Result, error) {
	results := make([]Result, len(keys))
	var rest []int // to be got one by one
	for from := 0; from < len(keys); from += groupKeys {
		var group []int
		for i := from; i < min(from+groupKeys, len(keys)); i++ {
			group = append(group, i)
		}
		p := c.begin(ctx) // Config.Timeout is for a group, not for any number of keys
		left, learned := c.getGroup(&p, keys, results, group)
		if learned { // a newer view: once more
			left, _ = c.getGroup(&p, keys, results, left)
		}
		rest = append(rest, left...)
	}
	c.getRest(ctx, keys, results, rest)
	for i := range results {
		if err := results[i].Err; err != nil && !errors.Is(err, ErrNotFound) {
			return results, err
		}
	}
	return results, nil
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
// whether regions have been learned that some of them were missing.
func (c *Client) getGroup(p *patience, keys [][]byte, results []Result, group []int) (rest []int, learned bool) {
	s, err := c.session(p)
	if err != nil || s.lease.lapsed.Load() {
		return group, false
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
	return rest, strange && s.learnRegions(p, v.Version)
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
func (c *Client) stepGroup(s *session, b *batch, keys [][]byte, members []member, results []Result) {
	now := c.now() // one reading per batch, after the poll
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
			m.absent(c, s, keys[m.i], results)
			continue
		}
		item, loc := m.g.lookup.Found()
		if v := s.judgeExpiry(&item, m.g.low, now); v == expiryAsk {
			m.state = layout.ActionAsk
			continue
		} else if v == expiryPassed {
			m.absent(c, s, keys[m.i], results)
			continue
		}
		s.cache.put(m.g.hash, loc, m.g.grant.retired.version)
		if item.Chunks > 0 {
			m.state = layout.ActionAsk // large: got singly
			continue
		}
		c.n.gets.Add(1)
		c.n.hits.Add(1)
		results[m.i].Value = append(make([]byte, 0, item.ValLen), item.Value()...)
	}
}

// absent notes that the member's key does not exist.
func (m *member) absent(c *Client, s *session, key []byte, results []Result) {
	s.cache.drop(m.g.hash)
	c.n.gets.Add(1)
	c.n.misses.Add(1)
	results[m.i].Err = &Error{Op: "get", Server: s.addr, Key: quoteKey(key), Err: ErrNotFound}
}

// getRest gets single keys, a few at a time.
func (c *Client) getRest(ctx context.Context, keys [][]byte, results []Result, rest []int) {
	if len(rest) == 0 {
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(groupAsks, len(rest)) {
		wg.Go(func() {
			for i := range next {
				results[i].Value, results[i].Err = c.Get(ctx, keys[i])
			}
		})
	}
	for _, i := range rest {
		next <- i
	}
	close(next)
	wg.Wait()
}

// MultiPut stores many pairs. It returns nil if all were stored and otherwise a
// *MultiError with the outcome of each, as Put would have reported it. The pairs
// are independent writes in no particular order: of two pairs with the same key
// either may be the one that stays.
//
// Without a deadline in ctx, Config.Timeout is for each pair.
func (c *Client) MultiPut(ctx context.Context, pairs []Pair) error {
	errs := make([]error, len(pairs))
	var under []putUnderWay
	var others []int // large ones, and those that a closing server refused
	finish := func(u putUnderWay) {
		err := c.finishPut(ctx, u, pairs[u.i])
		if errors.As(err, new(errNotSent)) {
			others = append(others, u.i) // for the next session
			return
		}
		errs[u.i] = c.fail("put", pairs[u.i].Key, u.s.addr, err)
	}
	for i, pair := range pairs {
		for c.putFits(pair) {
			if u, ok := c.startPut(ctx, i, pair); ok {
				under = append(under, u)
				break
			}
			if len(under) == 0 {
				errs[i] = c.Put(ctx, pair.Key, pair.Value) // waits for its turn
				break
			}
			// No credit is free: the oldest gives one back.
			finish(under[0])
			under = under[1:]
		}
		if !c.putFits(pair) {
			others = append(others, i)
		}
	}
	for _, u := range under {
		finish(u)
	}
	// These wait for slots. Only now does none of them wait for one that an
	// unfinished put of this very call holds.
	for _, i := range others {
		errs[i] = c.Put(ctx, pairs[i].Key, pairs[i].Value)
	}
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return &MultiError{Errs: errs, Failed: failed}
}

// putUnderWay is a put that has been posted.
type putUnderWay struct {
	i    int
	s    *session
	slot *slot
}

// putFits reports whether a pair goes into one message.
func (c *Client) putFits(pair Pair) bool {
	return checkKey(pair.Key) == nil && wire.PutFits(messageSize, len(pair.Key), len(pair.Value))
}

// startPut posts a put if it can do so without waiting.
func (c *Client) startPut(ctx context.Context, i int, pair Pair) (putUnderWay, bool) {
	s := c.current.Load()
	if s == nil || len(pair.Key) > int(s.welcome.MaxKey) ||
		!wire.PutFits(s.requestSize(), len(pair.Key), len(pair.Value)) {
		return putUnderWay{}, false
	}
	p := c.begin(ctx)
	sl := s.tryOpen(&p)
	if sl == nil {
		return putUnderWay{}, false
	}
	if sl.post(wire.AppendPut(sl.buf[:0], sl.id(), wire.Put{Key: pair.Key, Value: pair.Value})) != nil {
		return putUnderWay{}, false
	}
	c.n.puts.Add(1)
	return putUnderWay{i: i, s: s, slot: sl}, true
}

// finishPut waits for its reply. An errNotSent is a refusal by a server that is
// closing.
func (c *Client) finishPut(ctx context.Context, u putUnderWay, pair Pair) error {
	p := c.begin(ctx)
	r, err := u.slot.await(&p)
	if err == nil {
		r, err = r.check(wire.TypePut.Reply())
	}
	err = c.judge(r.putDone(err))
	u.s.cache.drop(layout.HashKey(u.s.view.Load().Seed, pair.Key))
	return err
}
