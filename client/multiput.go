package client

import (
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// MultiPut stores many pairs. It returns nil if all were stored and otherwise a
// *MultiError with the outcome of each, as Put would have reported it; in a
// cluster it is a *PartialError that names the nodes, too. The pairs are
// independent writes in no particular order: of two pairs with the same key
// either may be the one that stays. For pairs that belong together there is
// WriteBatch.
//
// As many are under way as there are credits, from one goroutine for each node.
// Without a deadline in ctx, Config.Timeout is for each pair.
func (c *Client) MultiPut(ctx context.Context, pairs []Pair) error {
	if c.fleet != nil {
		return c.fleet.multiPut(ctx, pairs)
	}
	errs := make([]error, len(pairs))
	c.solo.multiPut(ctx, pairs, errs, upTo(len(pairs)))
	return multiError(errs)
}

// multiError is nil if all are.
func multiError(errs []error) error {
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

// multiPut stores the pairs of which the indexes are given at one server.
func (c *peer) multiPut(ctx context.Context, pairs []Pair, errs []error, which []int) {
	m := multiPut{c: c, ctx: ctx, pairs: pairs, errs: errs}
	var large []int
	for n, i := range which {
		if !m.fits(pairs[i]) {
			large = append(large, i)
			continue
		}
		for !m.start(i) {
			if len(m.under) == 0 {
				m.repeat() // they hold slots, which a put may have to wait for
				m.put(i)
				break
			}
			m.finishOldest() // it gives a credit back
		}
		if m.nobody(i) {
			m.failAll(which[n+1:], i)
			m.failAll(large, i)
			large = nil
			break
		}
	}
	for len(m.under) > 0 {
		m.finishOldest()
	}
	m.repeat()
	// These wait for slots. Only now does none of them wait for one that an
	// unfinished put of this very call holds.
	for n, i := range large {
		m.put(i)
		if m.nobody(i) {
			m.failAll(large[n+1:], i)
			break
		}
	}
}

// nobody reports whether pair i has failed because nobody is there: it would be
// so for the others, too, each after as long a wait.
func (m *multiPut) nobody(i int) bool {
	return errors.Is(m.errs[i], ErrUnavailable) && !errors.Is(m.errs[i], ErrOutcomeUnknown) && m.c.current.Load() == nil
}

// failAll notes that pairs have failed as pair i did.
func (m *multiPut) failAll(which []int, i int) {
	why := m.errs[i]
	if e := (*Error)(nil); errors.As(why, &e) {
		why = e.Err
	}
	for _, j := range which {
		m.errs[j] = m.c.fail("put", m.pairs[j].Key, "", why)
	}
}

// A multiPut is one call of MultiPut.
type multiPut struct {
	c     *peer
	ctx   context.Context
	pairs []Pair
	errs  []error
	under []*putUnderWay // oldest first
	lost  []*putUnderWay // to be sent again, each with its slot
}

// A putUnderWay is a put that has been posted.
type putUnderWay struct {
	i    int
	s    *session
	slot *slot
	w    write
}

// fits reports whether a pair goes into one message.
func (m *multiPut) fits(pair Pair) bool {
	return checkKey(pair.Key) == nil && wire.PutFits(messageSize, len(pair.Key), len(pair.Value))
}

// start posts a put if it can do so without waiting.
func (m *multiPut) start(i int) bool {
	c, pair := m.c, m.pairs[i]
	s := c.current.Load()
	if s == nil || len(pair.Key) > int(s.welcome.MaxKey) || uint64(len(pair.Value)) > s.welcome.MaxValue ||
		!wire.PutFits(s.requestSize(), len(pair.Key), len(pair.Value)) {
		return false
	}
	w, err := newPut(pair.Key, pair.Value, PutOptions{})
	if err != nil {
		return false
	}
	if w.terms.ID, w.named = c.ids.tryTake(); !w.named {
		return false
	}
	p := c.begin(m.ctx)
	sl := s.tryOpen(&p)
	if sl == nil || sl.post(w.encode(sl, false)) != nil {
		c.finished(&w)
		return false
	}
	c.n.puts.Add(1)
	m.under = append(m.under, &putUnderWay{i: i, s: s, slot: sl, w: w})
	return true
}

// finishOldest waits for the reply of the put that was posted first.
func (m *multiPut) finishOldest() {
	u := m.under[0]
	m.under = m.under[1:]
	p := m.c.begin(m.ctx)
	r, err := u.slot.await(&p)
	if err == nil {
		r, err = r.check(wire.TypePut.Reply())
	}
	err = u.w.take(&r, err)
	u.s.forget(&u.w)
	switch u.w.judge(err) {
	case writeDone:
		err = u.w.refusal()
	case writeLost, writeLater:
		m.lost = append(m.lost, u)
		return
	default:
		err = m.c.ended(&u.w, plain(err))
	}
	m.c.finished(&u.w)
	m.errs[u.i] = m.c.fail("put", u.w.key, u.s.addr, err)
}

// repeat sends the lost ones again, under the ids that they have.
func (m *multiPut) repeat() {
	for _, u := range m.lost {
		if teeth.Off(teeth.F31BatchOfPuts) { // the wrong rule: a new request
			m.c.finished(&u.w)
			m.put(u.i)
			continue
		}
		m.errs[u.i] = m.c.finishWrite(m.ctx, "put", &u.w)
	}
	m.lost = m.lost[:0]
}

// put is a put like any other, which waits for its turn.
func (m *multiPut) put(i int) {
	w, err := newPut(m.pairs[i].Key, m.pairs[i].Value, PutOptions{})
	if err == nil {
		err = m.c.writeKey(m.ctx, "put", &w)
	}
	m.errs[i] = m.c.fail("put", m.pairs[i].Key, "", err)
}
