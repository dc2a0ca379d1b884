// Package read answers gets, one-sidedly where it can.
//
//	Get ─▶ route: whose key ─▶ quick.go     a remembered place: one copy, or one prepared READ
//	                         ─▶ onesided.go  a lookup: what to READ, what the bytes mean, the lease
//	                              └▶ large.go      values in chunks, two windows in flight
//	                                 direct.go     the same where memory is mapped: one copy
//	                         ─▶ bysend.go    the server answers; sendonly.go, where nothing may be READ
//	Many ─▶ route ─▶ group.go   the lookups of many keys stepped together
//	replicated keys             words.go: beside the lookup, cells of the group's voters; of many keys vouchers.go
//	                            bounded.go: as old as the caller allows, at any replica
//
// An answer counts under one rule: the grant of the lease was loaded before the first READ
// was posted, and holds after the last completion was handled. That of a replicated key counts if the words of a majority
// vouch for it, too. A client's call may come here
// with a Query of its own; nothing in it is kept.
package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Query is what a caller asks of one key, and where it goes.
type Query struct {
	InfoOnly bool
	Off, N   int64 // bytes of the value wanted; n < 0: to the end
	Dst      []byte
	Sink     *device.Owned // dst is its memory, into which chunks may be READ; or nil
	Info     base.Info
	Path     base.Path     // how it was answered
	patience time.Duration // of a try at a replica (route.Reroute.PatienceAt)
	tried    bool          // at a replica
	led      route.Led     // of the key
	bounded  bool          // the session's replica is known to be new enough (bounded.go); it is asked nothing by SEND
	// Head is, where the value is in parts, its head, and Dst is as it was: package parts gets the
	// parts. With InfoOnly there is none, and Info has the length of the whole value.
	Head []byte
}

// span returns which bytes of a value of size bytes are wanted.
func (w *Query) span(size int64) (from, to int64, err error) {
	if w.Off > size {
		return 0, 0, fmt.Errorf("%w: offset %d in a value of %d bytes", base.ErrRange, w.Off, size)
	}
	if w.N < 0 || w.N > size-w.Off {
		return w.Off, size, nil
	}
	return w.Off, w.Off + w.N, nil
}

// take appends the wanted part of a whole value, or keeps a head.
func (w *Query) take(value []byte) error {
	if layout.IsHead(value) {
		w.Head = append(w.Head[:0], value...)
		return nil
	}
	w.Head = nil
	from, to, err := w.span(int64(len(value)))
	if err == nil {
		w.Dst = append(w.Dst, value[from:to]...)
	}
	return err
}

// grow makes room for n more bytes at once.
func (w *Query) grow(n int) { w.Dst = slices.Grow(w.Dst, n) }

// PathOf is the path of a get that took n READs.
func PathOf(n uint32) base.Path {
	switch {
	case n <= 1:
		return base.PathOneRead
	case n == 2:
		return base.PathTwoReads
	}
	return base.PathMoreReads
}

// Get answers one key: by the peer of its shard's node, and by another one when told
// so. w is the caller's, and does not escape.
func Get(ctx context.Context, f *route.Router, op string, key []byte, w *Query) error {
	if err := base.CheckKey(key); err != nil {
		return f.Fail(op, key, err)
	}
	from := len(w.Dst)
	w.led = route.LedOf(f, key)
	p, err := f.Owner(key)
	if err == nil {
		err = getChecked(ctx, p, op, key, w)
	}
	if err == nil || errors.Is(err, base.ErrNotFound) {
		return err
	}
	return getElsewhere(ctx, f, op, key, w, from, p, err)
}

// getElsewhere is Get for a call that has failed with err at a peer, if it came to one.
func getElsewhere(ctx context.Context, f *route.Router, op string, key []byte, w *Query, from int, at *peer.Peer, err error) error {
	var way route.Reroute
	defer way.End()
	for {
		next := f.Again(ctx, &way, at, key, err)
		if next == nil {
			return f.Fail(op, key, way.Because(err))
		}
		// Nothing of what a former node said is used.
		ctx, w.Dst = next, w.Dst[:from]
		w.led = route.LedOf(f, key)
		if at, err = f.Owner(key); err == nil {
			w.patience = way.PatienceAt(at)
			err = getChecked(ctx, at, op, key, w)
		}
		if err == nil || errors.Is(err, base.ErrNotFound) {
			return err
		}
	}
}

// getKey answers one key at one server.
func getKey(ctx context.Context, c *peer.Peer, op string, key []byte, w *Query) error {
	if err := base.CheckKey(key); err != nil {
		return c.Fail(op, key, "", err)
	}
	return getChecked(ctx, c, op, key, w)
}

// getChecked is getKey for a key that may be one, over as many sessions as it takes.
func getChecked(ctx context.Context, c *peer.Peer, op string, key []byte, w *Query) error {
	if s := c.Current(); s != nil && (s.Mapped() || s.Short.IsWorth()) && !s.IsDown() && !c.Led() && getQuickly(ctx, s, key, w) {
		return nil
	}
	p := c.Begin(ctx)
	if c.Led() {
		c.Replica.Hurry(&p, w.patience)
		server, err := getLed(c, &p, key, w)
		return c.Replica.Fail(op, key, server, err)
	}
	server, err := getWith(c, &p, key, w)
	if err != nil {
		return c.Fail(op, key, server, err)
	}
	return nil
}

// getLed is one try at a replica, which is believed to lead: by READs that words vouch for (words.go), or by SEND. If the try
// fails another replica may answer.
func getLed(c *peer.Peer, p *base.Limit, key []byte, w *Query) (server string, err error) {
	var begun time.Time
	if !w.tried && c.Counts().Gets.Add(1)%base.LatencyEvery == 0 {
		begun = time.Now()
	}
	w.tried = true
	s, err := c.Replica.Reach(p)
	if err != nil {
		return "", err
	}
	from := len(w.Dst)
	if err = getOn(c, p, s, key, w); err != nil {
		w.Dst = w.Dst[:from]
	}
	switch {
	case !begun.IsZero() && (err == nil || err == base.ErrNotFound):
		c.Counts().GetTimes.Observe(time.Since(begun))
	case base.Again(err):
		c.Counts().RetryLost.Add(1)
		c.Settle(p, s)
	}
	return s.Addr, route.PutOff(err)
}

func getWith(c *peer.Peer, p *base.Limit, key []byte, w *Query) (server string, err error) {
	var begun time.Time
	if c.Counts().Gets.Add(1)%base.LatencyEvery == 0 {
		begun = time.Now()
	}
	from := len(w.Dst)
	for {
		if err := p.Over(); err != nil {
			return server, err
		}
		s, err := c.Session(p)
		if err != nil {
			return server, err
		}
		server = s.Addr
		err = getOn(c, p, s, key, w)
		if !begun.IsZero() && (err == nil || err == base.ErrNotFound) {
			c.Counts().GetTimes.Observe(time.Since(begun))
		}
		if err == nil {
			return server, nil
		}
		if !base.Again(err) {
			return server, base.Plain(err)
		}
		// Nothing of what a former session said is used.
		w.Dst = w.Dst[:from]
		c.Counts().RetryLost.Add(1)
		c.Settle(p, s)
	}
}

// largeTries is how often a large value is begun again one-sidedly before the
// server is asked to hold it still.
const largeTries = 3

// getOn is one try on one session.
func getOn(c *peer.Peer, p *base.Limit, s *session.Session, key []byte, w *Query) error {
	isLed := !w.led.IsNone()
	if isLed && !s.Words || !isLed && s.BySend {
		return ask(s, p, key, w)
	}
	g := getPool.Get().(*attempt)
	defer getPool.Put(g)
	g.words.of, g.isLed = w.led, isLed
	if w.bounded {
		g.words.of = route.Led{} // nobody has to vouch
	}
	n := s.Counts
	for range largeTries {
		verdict, err := oneSided(s, p, g, key)
		if err != nil {
			return err
		}
		switch verdict {
		case verdictAbsent:
			w.Path = PathOf(g.lookup.Counts.Reads)
			g.release()
			if !isLed && !c.Owns(s, key) {
				return BySend(s, p, key, w)
			}
			n.Misses.Add(1)
			return base.ErrNotFound
		case verdictAsk:
			return ask(s, p, key, w)
		}
		w.Info = base.Info{Size: int64(g.item.ValLen), Version: uint64(g.item.Version), Expiry: base.ExpiryTime(g.item.Expiry)}
		w.Path = PathOf(g.lookup.Counts.Reads)
		if w.InfoOnly || g.item.Chunks == 0 {
			if !w.InfoOnly {
				err = w.take(g.item.Value())
			} else if g.item.Chunks == 0 {
				w.Info.Size = layout.WholeLen(g.item.Value())
			}
			g.release()
			countHit(s, g)
			return err
		}
		w.Path = base.PathLarge
		src := newSource(s, g)
		g.release()
		switch err := readLarge(s, p, src, w); {
		case err == nil:
			countHit(s, g)
			return nil
		case !errors.Is(err, base.ErrOverwritten):
			return err
		}
		s.Cache.Drop(g.hash)
		n.RetryChunk.Add(1)
	}
	n.FallbackRounds.Add(1)
	return ask(s, p, key, w)
}

// ask is what is done where READs gave no answer. A replica that does not have to lead is not asked.
func ask(s *session.Session, p *base.Limit, key []byte, w *Query) error {
	if w.bounded {
		return errAsk
	}
	return BySend(s, p, key, w)
}
