package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/zeebo/xxh3"
)

// errClosing: the server refused because it is shutting down; nothing happened.
var errClosing = errors.New("server is shutting down")

// Put stores value under key. When it returns nil the value is durable, as far
// as the server's sync policy goes, and every get that begins afterwards sees
// it or something newer.
//
// It fails with ErrKeyEmpty, ErrKeyTooLarge, ErrTooLarge, ErrOverloaded,
// ErrNoSpace, ErrTimeout, ErrUnavailable, ErrClosed: then nothing was changed;
// or with ErrOutcomeUnknown: then it may have been. A put is never sent twice.
func (c *Client) Put(ctx context.Context, key, value []byte) error {
	if err := checkKey(key); err != nil {
		return c.fail("put", key, "", err)
	}
	p := c.begin(ctx)
	server, err := c.putWith(&p, key, value)
	return c.fail("put", key, server, err)
}

func (c *Client) putWith(p *patience, key, value []byte) (server string, err error) {
	if len(value) > layout.MaxValueLen {
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(value), layout.MaxValueLen)
	}
	c.n.puts.Add(1)
	return c.write(p, key, func(s *session) error { return s.put(p, key, value) })
}

// Delete removes key and reports whether it existed. It fails as Put does.
func (c *Client) Delete(ctx context.Context, key []byte) (existed bool, err error) {
	if err := checkKey(key); err != nil {
		return false, c.fail("delete", key, "", err)
	}
	p := c.begin(ctx)
	c.n.deletes.Add(1)
	server, err := c.write(&p, key, func(s *session) error {
		existed, err = s.delete(&p, key)
		return err
	})
	return existed && err == nil, c.fail("delete", key, server, err)
}

// write does f on a session, and on another one only if f certainly was not
// sent.
func (c *Client) write(p *patience, key []byte, f func(*session) error) (server string, err error) {
	for {
		if err := p.over(); err != nil {
			return server, err
		}
		s, err := c.session(p)
		if err != nil {
			return server, err
		}
		server = s.addr
		err = c.judge(f(s))
		s.cache.drop(layout.HashKey(s.view.Load().Seed, key))
		if not := (errNotSent{}); !errors.As(err, &not) {
			return server, err
		} else if !again(err) {
			return server, not.cause
		}
		c.n.lost.Add(1)
		s.settle(p)
	}
}

// judge says what a failed write means: what was not sent has no effect, what
// the server refused neither, and of the rest nobody knows.
func (c *Client) judge(err error) error {
	if err == nil || errors.As(err, new(errNotSent)) {
		return err
	}
	// A reply that makes no sense tells as little as none.
	for _, lost := range []error{errLost, errLate, ErrProtocol, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, lost) {
			err = because(ErrOutcomeUnknown, err)
			break
		}
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		c.n.unknown.Add(1)
	}
	return err
}

func (s *session) put(p *patience, key, value []byte) error {
	if uint64(len(value)) > s.welcome.MaxValue {
		return errNotSent{fmt.Errorf("%w: %d bytes, this server takes up to %d", ErrTooLarge, len(value), s.welcome.MaxValue)}
	}
	if len(key) > int(s.welcome.MaxKey) {
		return errNotSent{fmt.Errorf("%w: %d bytes, this server takes up to %d", ErrKeyTooLarge, len(key), s.welcome.MaxKey)}
	}
	if !wire.PutFits(s.requestSize(), len(key), len(value)) {
		return s.putLarge(p, key, value)
	}
	sl, err := s.open(p)
	if err != nil {
		return err
	}
	r, err := sl.call(p, wire.AppendPut(sl.buf[:0], sl.id(), wire.Put{Key: key, Value: value}))
	return r.putDone(err)
}

// putDone reads the reply of a put.
func (r *reply) putDone(err error) error {
	if err != nil {
		return err
	}
	if _, err := wire.ParseWriteReply(r.body); err != nil {
		// It says that the put was done, in words that make no sense.
		return because(ErrOutcomeUnknown, r.malformed(err))
	}
	r.done()
	return nil
}

// putLarge copies the value into registered memory, where the server READs it.
// The memory belongs to the put until its reply or the end of the QP, whatever
// becomes of the caller; the caller's own memory was only read by the copy. The
// checksum is of the copy's source, taken once: the server compares its own
// copy with it and refuses what is not the value that was put.
func (s *session) putLarge(p *patience, key, value []byte) error {
	staged, err := p.buffer(s.t.staging, len(value))
	if err != nil {
		if errors.Is(err, errNoBuffer) {
			err = because(ErrOverloaded, err)
		}
		return errNotSent{err}
	}
	copy(staged.mem, value)
	sl, err := s.open(p)
	if err != nil {
		s.t.staging.put(staged)
		return err
	}
	sl.staged = staged // from here on it is the slot's, which gives it back
	s.c.n.largePuts.Add(1)
	remote := staged.remote()
	r, err := sl.call(p, wire.AppendPutLarge(sl.buf[:0], sl.id(), wire.PutLarge{
		RKey: remote.RKey, Addr: remote.Addr,
		ValueLen: uint64(len(value)), Checksum: xxh3.Hash(staged.mem[:len(value)]), Key: key,
	}))
	return r.putDone(err)
}

func (s *session) delete(p *patience, key []byte) (existed bool, err error) {
	sl, err := s.open(p)
	if err != nil {
		return false, err
	}
	r, err := sl.call(p, wire.AppendDelete(sl.buf[:0], sl.id(), wire.Delete{Key: key}))
	if err != nil {
		return false, err
	}
	m, err := wire.ParseWriteReply(r.body)
	if err != nil {
		return false, because(ErrOutcomeUnknown, r.malformed(err))
	}
	r.done()
	return m.Existed, nil
}

// statusError turns a server's refusal into an error of this package.
func statusError(err error) error {
	switch wire.StatusOf(err) {
	case wire.StatusNotFound:
		return ErrNotFound
	case wire.StatusTooLarge:
		return because(ErrTooLarge, err)
	case wire.StatusKeyEmpty:
		return ErrKeyEmpty
	case wire.StatusKeyTooLarge:
		return because(ErrKeyTooLarge, err)
	case wire.StatusOverloaded, wire.StatusBusy:
		return because(ErrOverloaded, err)
	case wire.StatusNoSpace:
		return because(ErrNoSpace, err)
	case wire.StatusCorrupt:
		return because(ErrCorrupt, err)
	case wire.StatusClosing, wire.StatusIdle:
		return errNotSent{because(errClosing, err)}
	case wire.StatusVersion:
		return because(ErrVersion, err)
	case wire.StatusAuth:
		return because(ErrAuth, err)
	case wire.StatusUnknown:
		return because(ErrOutcomeUnknown, err)
	case wire.StatusProtocol:
		return because(ErrProtocol, err)
	}
	return because(ErrServer, err)
}
