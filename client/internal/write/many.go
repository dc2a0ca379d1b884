package write

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// multiPutAt stores the pairs of which the indexes are given at one server. What fails at a replica is kept in
// keep, which is nil where there are no replicas.
func multiPutAt(ctx context.Context, c *peer.Peer, pairs []base.Pair, errs []error, which []int, keep *kept, patience time.Duration) {
	m := multiPut{c: c, ctx: ctx, pairs: pairs, errs: errs, keep: keep, patience: patience}
	var large []int
	if c.Led() {
		which = keep.sorted(which)
	}
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
			// Each gives a credit back. Half of them are finished, so that as many go with the
			// next doorbell while the other half is under way.
			for range (len(m.under) + 1) / 2 {
				m.finishOldest()
			}
		}
		if m.unreached(i) {
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
		if m.unreached(i) {
			m.failAll(large[n+1:], i)
			break
		}
	}
}

// unreached reports whether pair i has failed because the server cannot be reached. The
// others would fail so, too, each after as long a wait.
func (m *multiPut) unreached(i int) bool {
	if m.c.Led() {
		return route.OfNode(m.errs[i]) && !errors.Is(m.errs[i], base.ErrOutcomeUnknown)
	}
	return errors.Is(m.errs[i], base.ErrUnavailable) && !errors.Is(m.errs[i], base.ErrOutcomeUnknown) && m.c.Current() == nil
}

// failAll notes that pairs have failed as pair i did.
func (m *multiPut) failAll(which []int, i int) {
	why := m.errs[i]
	if e := (*base.Error)(nil); errors.As(why, &e) {
		why = e.Err
	}
	for _, j := range which {
		m.errs[j] = m.fail(m.pairs[j].Key, "", why)
	}
}

// fail makes the error of a put, or of a try at a replica.
func (m *multiPut) fail(key []byte, server string, err error) error {
	if m.c.Led() {
		return m.c.Replica.Fail("put", key, server, err)
	}
	return m.c.Fail("put", key, server, err)
}

// write is the put of pair i: the one that was kept, or a new one.
func (m *multiPut) write(i int) (w Write, err error) {
	if m.c.Led() {
		if old := m.keep.take(i); old != nil {
			w = *old
		}
	}
	if w.Type == 0 {
		w, err = NewPut(m.pairs[i].Key, m.pairs[i].Value, wire.Terms{})
	}
	w.patience = m.patience
	return w, err
}

// kept keeps a write that has a name which other replicas know, and ends any other.
func (m *multiPut) kept(i int, w *Write) {
	if !w.isShared(m.c) {
		finished(w)
		return
	}
	own := *w
	own.refused()
	m.keep.put(i, &own)
}

// A multiPut is one call of MultiPut.
type multiPut struct {
	c     *peer.Peer
	ctx   context.Context
	pairs []base.Pair
	errs  []error
	under []*putUnderWay   // oldest first
	lost  []*putUnderWay   // to be sent again, each with its slot
	last  *session.Session // has puts queued that are not posted; or nil

	keep     *kept // at replicas
	patience time.Duration
}

// A putUnderWay is a put that has been posted.
type putUnderWay struct {
	i    int
	s    *session.Session
	slot *session.Slot
	w    Write
}

// fits reports whether a pair goes into one message.
func (m *multiPut) fits(pair base.Pair) bool {
	return base.CheckKey(pair.Key) == nil && wire.PutFits(session.MessageSize, len(pair.Key), len(pair.Value))
}

// start queues a put for the next post if it can do so without waiting.
func (m *multiPut) start(i int) bool {
	c, pair := m.c, m.pairs[i]
	s := c.Current()
	if s == nil || len(pair.Key) > int(s.Welcome.MaxKey) || uint64(len(pair.Value)) > s.Welcome.MaxValue ||
		!wire.PutFits(s.RequestSize(), len(pair.Key), len(pair.Value)) {
		return false
	}
	w, err := m.write(i)
	if err != nil {
		return false
	}
	again := w.named
	if !again {
		w.names = c.Names(w.anyKey())
		if w.Terms.ID, w.named = w.names.TryTake(); !w.named {
			return false
		}
	}
	p := c.Begin(m.ctx)
	if c.Led() {
		w.hurry(c, &p)
	}
	sl := s.TryOpen(&p)
	if m.last != s {
		m.post()
	}
	if sl == nil || sl.Queue(w.encode(s, sl, false)) != nil {
		if !again {
			finished(&w)
		}
		m.kept(i, &w)
		return false
	}
	m.last = s
	if !again {
		c.Counts().Puts.Add(1)
	}
	m.under = append(m.under, &putUnderWay{i: i, s: s, slot: sl, w: w})
	return true
}

// post posts what start has queued.
func (m *multiPut) post() {
	if m.last != nil {
		m.last.PostQueued()
		m.last = nil
	}
}

// finishOldest waits for the reply of the put that was posted first.
func (m *multiPut) finishOldest() {
	m.post()
	u := m.under[0]
	m.under = m.under[1:]
	p := m.c.Begin(m.ctx)
	r, err := u.slot.Await(&p)
	if err == nil {
		r, err = r.Check(wire.TypePut.Reply())
	}
	err = u.w.take(&r, err)
	forget(u.s, &u.w)
	state := u.w.judge(err)
	if state != writeDone && u.w.isShared(m.c) && !errors.Is(err, base.ErrOverloaded) {
		state.count(m.c)
		m.kept(u.i, &u.w)
		m.errs[u.i] = m.c.Replica.Fail("put", u.w.Key, u.s.Addr, u.w.tried(err))
		return
	}
	switch state {
	case writeDone:
		err = u.w.refusal()
	case writeLost, writeLater:
		m.lost = append(m.lost, u)
		return
	default:
		err = ended(m.c, &u.w, base.Plain(err))
	}
	finished(&u.w)
	m.errs[u.i] = m.c.Fail("put", u.w.Key, u.s.Addr, err)
}

// repeat sends the lost ones again, under the ids that they have.
func (m *multiPut) repeat() {
	for _, u := range m.lost {
		m.errs[u.i] = finishWrite(m.ctx, m.c, "put", &u.w)
		m.kept(u.i, &u.w)
	}
	m.lost = m.lost[:0]
}

// put is a put like any other, which waits for its turn.
func (m *multiPut) put(i int) {
	w, err := m.write(i)
	if err == nil && m.c.Led() && !w.named {
		p := m.c.Begin(m.ctx)
		w.names = m.c.Names(w.anyKey())
		err = m.keep.name(&p, &w)
	}
	if err == nil {
		err = writeAt(m.ctx, m.c, "put", &w)
		m.kept(i, &w)
	}
	m.errs[i] = m.fail(m.pairs[i].Key, "", err)
}

// Many stores many pairs, as client.MultiPut says. The error is nil if all were stored, and else
// a *base.PartialError.
func Many(ctx context.Context, f *route.Router, pairs []base.Pair) error {
	errs := make([]error, len(pairs))
	if p := f.Only(); p != nil { // without what several nodes cost
		multiPutAt(ctx, p, pairs, errs, route.UpTo(len(pairs)), nil, 0)
	} else {
		var keep kept
		f.Many(ctx, "put", len(pairs), func(i int) []byte { return pairs[i].Key }, nil,
			func(ctx context.Context, p *peer.Peer, which []int, patience time.Duration) {
				multiPutAt(ctx, p, pairs, errs, which, &keep, patience)
			},
			func(i int) *error { return &errs[i] })
		for i, w := range keep.list {
			errs[i] = w.unanswered(f, errs[i])
		}
	}
	return base.Partial(func(i int) error { return errs[i] }, len(errs), func(error) bool { return true })
}
