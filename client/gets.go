package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A want is what a caller asks of one key, and where it goes.
type want struct {
	infoOnly bool
	off, n   int64 // bytes of the value wanted; n < 0: to the end
	dst      []byte
	sink     *Buffer // dst is its memory, into which chunks may be READ; or nil
	info     Info
	path     Path // how it was answered
}

// span returns which bytes of a value of size bytes are wanted.
func (w *want) span(size int64) (from, to int64, err error) {
	if w.off > size {
		return 0, 0, fmt.Errorf("%w: offset %d in a value of %d bytes", ErrRange, w.off, size)
	}
	if w.n < 0 || w.n > size-w.off {
		return w.off, size, nil
	}
	return w.off, w.off + w.n, nil
}

// take appends the wanted part of a whole value.
func (w *want) take(value []byte) error {
	from, to, err := w.span(int64(len(value)))
	if err == nil {
		w.dst = append(w.dst, value[from:to]...)
	}
	return err
}

// Get returns the value of key, in a slice of its own. It fails with
// ErrNotFound if there is none, ErrKeyEmpty, ErrKeyTooLarge, ErrTimeout,
// ErrUnavailable, ErrClosed, or ErrCorrupt. A server that has no room for the
// answer for now is asked again until the time is over; the error is then
// ErrOverloaded as well as ErrTimeout.
func (c *Client) Get(ctx context.Context, key []byte) ([]byte, error) {
	w := want{n: -1}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, err
	}
	if w.dst == nil {
		w.dst = []byte{}
	}
	return w.dst, nil
}

// GetInto is Get into memory of the caller: the value overwrites dst from its
// beginning and the slice that holds it is returned, which is dst[:n] if the
// capacity of dst was enough and a new slice otherwise. With enough capacity,
// and where the get is answered one-sidedly, it allocates nothing. After an
// error the content of dst is undefined.
func (c *Client) GetInto(ctx context.Context, key, dst []byte) ([]byte, error) {
	w := want{n: -1, dst: dst[:0]}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, err
	}
	return w.dst, nil
}

// GetRange returns up to n bytes of the value of key from offset off on, fewer
// if the value ends before. Of a value above 64 KiB only the 64 KiB chunks that
// hold them are READ, and each is verified. An offset beyond the end, or a
// negative argument, is ErrRange; otherwise it fails as Get does. All bytes of
// one call are of one version of the value.
func (c *Client) GetRange(ctx context.Context, key []byte, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, c.fail("get-range", key, fmt.Errorf("%w: offset %d, length %d", ErrRange, off, n))
	}
	w := want{off: off, n: n}
	if err := c.get(ctx, "get-range", key, &w); err != nil {
		return nil, err
	}
	if w.dst == nil {
		w.dst = []byte{}
	}
	return w.dst, nil
}

// GetItem is Get that also tells version and expiry: what PutWith takes for
// IfVersion, and DeleteIf. All of it is of one moment. It fails as Get does.
func (c *Client) GetItem(ctx context.Context, key []byte) (Item, error) {
	w := want{n: -1, dst: []byte{}}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return Item{}, err
	}
	return Item{Value: w.dst, Version: w.info.Version, Expiry: w.info.Expiry}, nil
}

// Stat returns size, version and expiry of the value of key. It fails as Get does.
func (c *Client) Stat(ctx context.Context, key []byte) (Info, error) {
	w := want{infoOnly: true}
	if err := c.get(ctx, "stat", key, &w); err != nil {
		return Info{}, err
	}
	return w.info, nil
}

// Exists reports whether the store has key. It fails as Get does, but for
// ErrNotFound.
func (c *Client) Exists(ctx context.Context, key []byte) (bool, error) {
	w := want{infoOnly: true}
	switch err := c.get(ctx, "exists", key, &w); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNotFound):
		return false, nil
	default:
		return false, err
	}
}

// get answers one key, over as many sessions as it takes.
func (c *peer) get(ctx context.Context, op string, key []byte, w *want) error {
	if err := checkKey(key); err != nil {
		return c.fail(op, key, "", err)
	}
	if s := c.current.Load(); s != nil && s.direct != nil && !s.isDown() && s.getQuickly(ctx, key, w) {
		return nil
	}
	p := c.begin(ctx)
	server, err := c.getWith(&p, key, w)
	if err != nil {
		return c.fail(op, key, server, err)
	}
	return nil
}

func (c *peer) getWith(p *patience, key []byte, w *want) (server string, err error) {
	var begun time.Time
	if c.n.gets.Add(1)%latencyEvery == 0 {
		begun = time.Now()
	}
	base := len(w.dst)
	for {
		if err := p.over(); err != nil {
			return server, err
		}
		s, err := c.session(p)
		if err != nil {
			return server, err
		}
		server = s.addr
		err = s.get(p, key, w)
		if !begun.IsZero() && (err == nil || err == ErrNotFound) {
			c.n.getTimes.observe(time.Since(begun))
		}
		if err == nil {
			return server, nil
		}
		if !again(err) {
			return server, plain(err)
		}
		// Nothing of what a former session said is used.
		w.dst = w.dst[:base]
		c.n.lost.Add(1)
		s.settle(p)
	}
}

// again reports whether the same request may be made on another session: it was
// not sent, or changes nothing and was lost.
func again(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		return false
	}
	return errors.Is(err, errLost) || errors.Is(err, errClosing)
}

// plain takes off the mark that a request was not sent: of one that changes
// nothing it tells nothing.
func plain(err error) error {
	if not := (errNotSent{}); errors.As(err, &not) {
		return not.cause
	}
	return err
}

// settle waits until a session that has just lost a call is out of use, so that
// the caller does not meet it again.
func (s *session) settle(p *patience) {
	if s.isDown() || s.c.current.Load() != s {
		return
	}
	ctx, cancel := p.bounded()
	defer cancel()
	select {
	case <-s.down:
	case <-s.qp.Done(): // watchQP is on its way
		s.fail(s.qp.Err())
	case <-ctx.Done():
	}
}

// largeTries is how often a large value is begun again one-sidedly before the
// server is asked to hold it still.
const largeTries = 3

// get is one try on one session.
func (s *session) get(p *patience, key []byte, w *want) error {
	if s.sendOnly {
		return s.getBySend(p, key, w)
	}
	g := getPool.Get().(*get)
	defer getPool.Put(g)
	n := &s.c.n
	for range largeTries {
		verdict, err := s.oneSided(p, g, key)
		if err != nil {
			return err
		}
		switch verdict {
		case verdictAbsent:
			w.path = readPath(g.lookup.Counts.Reads)
			g.release()
			if !s.owns(key) {
				return s.getBySend(p, key, w)
			}
			n.misses.Add(1)
			return ErrNotFound
		case verdictAsk:
			return s.getBySend(p, key, w)
		}
		w.info = Info{Size: int64(g.item.ValLen), Version: uint64(g.item.Version), Expiry: expiryTime(g.item.Expiry)}
		w.path = readPath(g.lookup.Counts.Reads)
		if w.infoOnly || g.item.Chunks == 0 {
			if !w.infoOnly {
				err = w.take(g.item.Value())
			}
			g.release()
			s.hit(g)
			return err
		}
		w.path = PathLarge
		src := s.largeSource(g)
		g.release()
		switch err := s.readLarge(p, src, w); {
		case err == nil:
			s.hit(g)
			return nil
		case !errors.Is(err, errMoved):
			return err
		}
		s.cache.drop(g.hash)
		n.chunk.Add(1)
	}
	n.fbRounds.Add(1)
	return s.getBySend(p, key, w)
}

// getBySend asks the server. A value too large for a reply is held by it and
// READ.
func (s *session) getBySend(p *patience, key []byte, w *want) error {
	w.path = PathSend
	if w.infoOnly {
		return s.existsBySend(p, key, w)
	}
	var h heldRead
	var refused refusals
	for tries := 0; tries < heldTries; {
		sl, err := s.open(p)
		if err != nil {
			return refused.because(err)
		}
		asked := s.now()
		r, err := sl.call(p, wire.AppendGet(sl.buf[:0], sl.id(), wire.Get{
			MaxInline: uint32(s.welcome.ReplySize), Key: key,
		}))
		if err != nil {
			if errors.Is(err, ErrNotFound) {
				s.c.n.sendGets.Add(1)
			}
			if err = refused.again(s.c, p, err); err == nil {
				continue
			}
			return err
		}
		tries++
		m, err := wire.ParseGetReply(r.body)
		if err != nil {
			return r.malformed(err)
		}
		w.info = Info{Size: int64(m.ValueLen), Version: m.Version, Expiry: expiryTime(m.Expiry)}
		if m.Kind == wire.GetInline {
			w.dst = w.dst[:len(w.dst)-h.taken]
			err = w.take(m.Value)
			r.done()
			s.c.n.sendGets.Add(1)
			return err
		}
		hold, valueLen, version := m.Hold, m.ValueLen, m.Version
		r.done()
		err = s.readHeld(p, &h, hold, valueLen, version, asked, key, w)
		s.letGo(p, hold.ID)
		if err == nil {
			s.c.n.sendGets.Add(1)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		s.c.n.chunk.Add(1)
		if err := p.over(); err != nil {
			return refused.because(err)
		}
		s.c.rest(p, heldRest)
	}
	return fmt.Errorf("%w: a value held by the server could not be read in %d leases", ErrUnavailable, heldTries)
}

func (s *session) existsBySend(p *patience, key []byte, w *want) error {
	var r reply
	var refused refusals
	for {
		sl, err := s.open(p)
		if err != nil {
			return refused.because(err)
		}
		r, err = sl.call(p, wire.AppendExists(sl.buf[:0], sl.id(), wire.Key{Key: key}))
		if err == nil {
			break
		}
		if errors.Is(err, ErrNotFound) {
			s.c.n.sendGets.Add(1)
		}
		if err = refused.again(s.c, p, err); err != nil {
			return err
		}
	}
	m, err := wire.ParseExistsReply(r.body)
	if err != nil {
		return r.malformed(err)
	}
	r.done()
	w.info = Info{Size: int64(m.ValueLen), Version: m.Version, Expiry: expiryTime(m.Expiry)}
	s.c.n.sendGets.Add(1)
	return nil
}

// grow makes room for n more bytes at once.
func (w *want) grow(n int) { w.dst = slices.Grow(w.dst, n) }

// expiryTime is an expiry in microseconds since 1970; 0 is never.
func expiryTime(micros uint64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(min(micros, 1<<62)))
}
