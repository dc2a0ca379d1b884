package write

import (
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A lane carries out the puts of a window that go to one node, from one goroutine:
//
//	ready ──▶ post as many as there are slots, with one doorbell ──▶ under way
//	  ▲                                                                  │
//	  └────── next of the key ◀── ended ◀── finish the older half ◀──────┘
//
// The older half is finished before the next burst because each doorbell, and each wake-up of
// the server behind it, costs more than a put; the other half is under way meanwhile. The
// goroutine lives as long as there are puts, so that a client at rest has none.
//
// It calls nothing of the program, so no program can stop it.
type lane struct {
	a *Asyncs
	c *peer.Peer

	ready []*Pending // Asyncs.mu; oldest first

	// These are of the lane's goroutine.
	todo  []*Pending // taken from ready, not posted
	under []*Pending // posted, oldest first
}

// An attempted is the copy of a put that its lane has posted.
type attempted struct {
	s     *session.Session
	slot  *session.Slot
	limit base.Limit // of the try
	begun time.Time
}

// run carries out puts until there are none.
func (l *lane) run() {
	for l.take() {
		l.burst()
		for range (len(l.under) + 1) / 2 {
			l.finish(l.pop())
		}
	}
}

// take fetches the puts that are ready. It returns false when there is nothing to do, and then
// the lane is not in the table any more.
func (l *lane) take() bool {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	l.todo = append(l.todo, l.ready...)
	clear(l.ready) // an ended put is not to be kept alive
	l.ready = l.ready[:0]
	if len(l.todo)+len(l.under) == 0 {
		delete(l.a.lanes, l.c)
		return false
	}
	return true
}

func (l *lane) pop() *Pending {
	p := l.under[0]
	l.under[0] = nil
	if l.under = l.under[1:]; len(l.under) == 0 {
		l.under = nil
	}
	return p
}

// burst posts what can be posted without waiting.
func (l *lane) burst() {
	s, now, n := l.c.Current(), time.Now(), 0
	for n < len(l.todo) {
		p := l.todo[n]
		if over := p.limit.Over(); over != nil {
			l.a.end(p, l.c.Fail("put", p.w.Key, "", over))
		} else if s == nil || !fits(s, &p.w) {
			go l.a.alone(p)
		} else if l.start(p, s) {
			p.try.begun = now
			l.under = append(l.under, p)
		} else if len(l.under) > 0 && !s.IsDown() {
			s.AskForCredits()
			break // a put that ends gives back what this one needs
		} else {
			go l.a.alone(p) // other calls have everything: it waits for its turn among them
		}
		n++
	}
	if s != nil {
		s.PostQueued()
	}
	rest := copy(l.todo, l.todo[n:])
	clear(l.todo[rest:])
	l.todo = l.todo[:rest]
}

// fits reports whether the server takes a put, in one message.
func fits(s *session.Session, w *Write) bool {
	return len(w.Key) <= int(s.Welcome.MaxKey) && uint64(len(w.Data)) <= s.Welcome.MaxValue &&
		wire.PutFits(s.RequestSize(), len(w.Key), len(w.Data))
}

// start queues a put for the next post of s if it can do so without waiting.
func (l *lane) start(p *Pending, s *session.Session) bool {
	w := &p.w
	w.names = l.c.Names(w.anyKey())
	if w.Terms.ID, w.named = w.names.TryTake(); !w.named {
		return false
	}
	p.try.limit = p.limit
	if l.c.Led() {
		w.hurry(l.c, &p.try.limit)
	}
	sl := s.TryOpen(&p.try.limit)
	if sl == nil || sl.Queue(w.encode(s, sl, false)) != nil {
		finished(w)
		w.first = 0
		return false
	}
	l.c.Counts().Puts.Add(1)
	p.try.s, p.try.slot = s, sl
	return true
}

// finish waits for the reply of a put.
func (l *lane) finish(p *Pending) {
	s, w := p.try.s, &p.w
	r, err := p.try.slot.Await(&p.try.limit)
	if err == nil {
		r, err = r.Check(wire.TypePut.Reply())
	}
	err = w.take(&r, err)
	p.try.s, p.try.slot = nil, nil
	forget(s, w)
	state := w.judge(err)
	if state != writeDone && w.isShared(l.c) && !errors.Is(err, base.ErrOverloaded) {
		state.count(l.c)
		go l.a.onward(l.c, p, s.Addr, err)
		return
	}
	switch state {
	case writeDone:
		if err = w.refusal(); err == nil {
			l.c.Counts().WriteTimes.Observe(time.Since(p.try.begun))
		}
	case writeLost:
		l.c.Counts().RetryLost.Add(1)
		go l.a.again(l.c, p)
		return
	case writeLater:
		l.c.Counts().RetryWrite.Add(1)
		go l.a.again(l.c, p)
		return
	default:
		err = ended(l.c, w, base.Plain(err))
	}
	finished(w)
	if err = l.c.Fail("put", w.Key, s.Addr, err); l.a.leads(err) {
		ctx, cancel := p.limit.Bounded()
		go func() {
			defer cancel()
			l.a.moved(ctx, p, l.c, err)
		}()
		return
	}
	l.a.end(p, err)
}
