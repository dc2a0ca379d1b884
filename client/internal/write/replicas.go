package write

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
)

// Writes to shards that have replicas. The result of a write stands in the log of its group, under
// its name, so whichever replica leads next knows it. So a write keeps one name at all of them:
//
//	one try at the node that is believed to lead ──┬─ an answer ──────────────────────────▶ done
//	        ▲                                      ├─ "I do not lead": this copy did nothing ─┐
//	        │                                      └─ lost, silent, unknown: it may have ─────┤
//	        └───────── the same request under the same name, at the next replica ◀────────────┘
//
// until the caller's time is over. Its age counts from the first copy, at whatever node that
// was: all peers have one lease clock. Its slot is one of the group's (peer.IDs), in the whole client, because a
// slot that two writes to one group had, by two peers, would be one slot to the group.

// largePace is how many bytes of a large write a server READs in a second, at the least: a try has so
// much longer before the server counts as silent.
const largePace = 64 << 20

// isShared reports whether the write has a name that all replicas know it by.
func (w *Write) isShared(c *peer.Peer) bool { return w.named && w.names != c.IDs }

// hurry bounds one try at a replica.
func (w *Write) hurry(c *peer.Peer, p *base.Limit) {
	patience := w.patience
	if n := time.Duration(len(w.Data)); n > largePace/8 {
		patience = max(patience, peer.Silence+n*time.Second/largePace)
	}
	c.Replica.Hurry(p, patience)
}

// tryLed sends a write to one replica, and again while that has no room for it. An error is what the
// try has failed with, and the write keeps its name: elsewhere decides what becomes of it.
func tryLed(c *peer.Peer, p *base.Limit, w *Write) (server string, err error) {
	w.hurry(c, p)
	s, err := c.Replica.Reach(p)
	if err != nil {
		return "", err
	}
	for pause := base.RetryFirst; ; pause = min(2*pause, base.RetryMost) {
		err = attempt(c, p, s, w)
		forget(s, w)
		state := w.judge(err)
		state.count(c)
		switch {
		case state == writeDone:
			finished(w)
			return s.Addr, w.refusal()
		case state == writeLost:
			c.Settle(p, s)
		case state == writeLater && errors.Is(err, base.ErrOverloaded):
			p.Rest(pause)
			over := p.Over()
			if over == nil {
				continue
			}
			err = base.Because(base.Plain(err), over)
		}
		return s.Addr, w.tried(err)
	}
}

// count counts a try that will be followed by another.
func (s writeState) count(c *peer.Peer) {
	switch s {
	case writeLost:
		c.Counts().RetryLost.Add(1)
	case writeLater:
		c.Counts().RetryWrite.Add(1)
	}
}

// tried is the error of a try that has failed with err.
func (w *Write) tried(err error) error {
	if w.sent && errors.Is(err, base.ErrProtocol) { // the node makes no sense; another one may know
		return base.Because(base.ErrOutcomeUnknown, err)
	}
	return route.PutOff(err)
}

// isForgotten reports whether a replica may not know the outcome any more, and says so.
func (w *Write) isForgotten(err error) bool {
	return errors.Is(err, base.ErrOutcomeUnknown) && w.sent && w.age() >= tooOld
}

// given ends a write that no replica has answered, with the error of its last try: of what may have taken effect the
// outcome is unknown, however sure the last try is that it did nothing.
func (w *Write) given(c *peer.Peer, err error) error {
	defer finished(w)
	if !w.isShared(c) {
		return err
	}
	return base.Reasoned(err, func(why error) error { return ended(c, w, why) })
}

// unanswered is given for one of many, whose last node is not known.
func (w *Write) unanswered(f *route.Router, err error) error {
	if p, none := f.Owner(w.Key); none == nil {
		return w.given(p, err)
	}
	finished(w)
	return err
}

// kept are the writes of one MultiPut that have failed at a replica, until they are tried at the
// next one. Safe for concurrent use; mu is a leaf.
type kept struct {
	mu   sync.Mutex
	list map[int]*Write // by index of the pair
	some chan struct{}  // closed while list is not empty; nil: nobody has asked for it
}

// name takes a name for a write, waiting for one, but not while the call keeps writes: those may have all the names
// that there are, and no answer comes for them before the next tries. route.ErrPutOff.
func (k *kept) name(p *base.Limit, w *Write) (err error) {
	if w.Terms.ID, w.named = w.names.TryTake(); w.named {
		return nil
	}
	ctx, cancel := context.WithCancel(p.Ctx)
	defer cancel()
	some := k.hasSome()
	go func() {
		select {
		case <-some:
			cancel()
		case <-ctx.Done():
		}
	}()
	within := *p
	within.Ctx = ctx
	w.Terms.ID, err = w.names.Take(&within)
	switch w.named = err == nil; {
	case w.named:
		return nil
	case p.Ctx.Err() == nil && errors.Is(err, context.Canceled):
		return route.ErrPutOff
	}
	return route.PutOff(base.NotSent(err))
}

// hasSome returns a channel that is closed when there are writes.
func (k *kept) hasSome() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.some == nil {
		k.some = make(chan struct{})
		if len(k.list) > 0 {
			close(k.some)
		}
	}
	return k.some
}

// take hands over the write of pair i; nil if there is none.
func (k *kept) take(i int) *Write {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.list[i]
	if delete(k.list, i); w != nil && len(k.list) == 0 {
		k.some = nil
	}
	return w
}

// put keeps the write of pair i.
func (k *kept) put(i int, w *Write) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.list == nil {
		k.list = make(map[int]*Write)
	}
	if len(k.list) == 0 && k.some != nil {
		close(k.some)
	}
	k.list[i] = w
}

// sorted puts first those of which a write is kept: they have names, which the others may wait for.
func (k *kept) sorted(which []int) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.list) == 0 {
		return which
	}
	all := make([]int, 0, len(which))
	for _, has := range []bool{true, false} {
		for _, i := range which {
			if (k.list[i] != nil) == has {
				all = append(all, i)
			}
		}
	}
	return all
}
