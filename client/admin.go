package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Ping sends a message to the server and returns how long the answer took. The
// server answers it without its store, so it shows that the connection lives,
// not that puts succeed. In a cluster it asks each node that owns keys, side by
// side, and returns the longest; it fails with a *PartialError.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	if c.fleet != nil {
		return c.fleet.slowest(ctx, "ping", func(p *peer) (time.Duration, error) { return p.ping(ctx) })
	}
	return c.solo.ping(ctx)
}

func (c *peer) ping(ctx context.Context) (time.Duration, error) {
	p := c.begin(ctx)
	var took time.Duration
	err := c.ask(&p, "ping", nil, func(s *session) error {
		sl, err := s.openPing(&p)
		if err != nil {
			return err
		}
		echo := uint64(c.now())
		begin := time.Now()
		r, err := sl.call(&p, wire.AppendPing(sl.buf[:0], sl.id(), wire.Ping{Echo: echo, View: s.viewInPing()}))
		if err != nil {
			return err
		}
		took = time.Since(begin)
		m, err := wire.ParsePingReply(r.body)
		if err != nil || m.Echo != echo {
			return r.malformed(errors.Join(err, fmt.Errorf("echo %d of %d", m.Echo, echo)))
		}
		s.pong(m, sl.begun)
		s.sawView(m.ViewVersion)
		r.done()
		return nil
	})
	return took, err
}

// PingRead READs the server's beat, one-sidedly, and returns how long that took:
// the way to the memory and back, with the server's CPU taking no part. That the
// memory may be believed is not shown by it. In a cluster it is as Ping is. It fails
// with ErrUnsupported for a tenant who has no one-sided access: there is no memory
// that he may READ.
func (c *Client) PingRead(ctx context.Context) (time.Duration, error) {
	if c.fleet != nil {
		return c.fleet.slowest(ctx, "ping-read", func(p *peer) (time.Duration, error) { return p.pingRead(ctx) })
	}
	return c.solo.pingRead(ctx)
}

func (c *peer) pingRead(ctx context.Context) (time.Duration, error) {
	p := c.begin(ctx)
	var took time.Duration
	err := c.ask(&p, "ping-read", nil, func(s *session) error {
		if s.sendOnly {
			return fmt.Errorf("%w: this tenant has no one-sided access: all its gets are SENDs", ErrUnsupported)
		}
		b := s.newBatch(s.view.Load())
		b.addBeat()
		if b.beat < 0 {
			b.release()
			return fmt.Errorf("%w: the region table has no place for the beat", ErrProtocol)
		}
		begin := time.Now()
		mine, err := b.run(&p)
		took = time.Since(begin)
		if mine {
			b.release()
		}
		return err
	})
	return took, err
}

// maxStats bounds the server's counters, bytes of JSON.
const maxStats = 4 << 20

// Stats returns the counters of this client and of the server. In a cluster each
// node that owns keys is asked, side by side; what some could not be asked for is
// a *PartialError beside the stats of the others.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	if c.fleet != nil {
		return c.fleet.stats(ctx)
	}
	return c.solo.stats(ctx)
}

func (c *peer) stats(ctx context.Context) (Stats, error) {
	p := c.begin(ctx)
	if err := p.enter(c.statsTurn, 1); err != nil {
		return Stats{Client: c.counters(), Session: c.serverInfo()}, c.fail("stats", nil, "", err)
	}
	defer c.statsTurn.leave(1)
	var text []byte
	err := c.ask(&p, "stats", nil, func(s *session) error {
		text = text[:0]
		for total := uint32(1); uint32(len(text)) < total; {
			sl, err := s.open(&p)
			if err != nil {
				return err
			}
			r, err := sl.call(&p, wire.AppendStats(sl.buf[:0], sl.id(), wire.StatsRequest{Offset: uint32(len(text))}))
			if err != nil {
				return err
			}
			m, err := wire.ParseStatsReply(r.body)
			if err == nil && (m.Total > maxStats || int(m.Offset) != len(text) || len(m.Data) == 0 && m.Total > 0) {
				err = fmt.Errorf("part at %d of %d bytes", m.Offset, m.Total)
			}
			if err != nil {
				return r.malformed(err)
			}
			text, total = append(text, m.Data...), m.Total
			r.done()
		}
		return nil
	})
	return Stats{Client: c.counters(), Session: c.serverInfo(), Server: text}, err
}

// View returns the region table of the session in force, a copy: what
// ReadRegion can read. In a cluster each node has its own: see Node.
func (c *Client) View(ctx context.Context) (*layout.View, error) {
	if c.fleet != nil {
		return nil, c.fail("view", nil, errNameNode)
	}
	return c.solo.view(ctx)
}

func (c *peer) view(ctx context.Context) (*layout.View, error) {
	p := c.begin(ctx)
	s, err := c.session(&p)
	if err != nil {
		return nil, c.fail("view", nil, "", err)
	}
	return s.view.Load().Clone(), nil
}

// ReadRegion READs len(dst) bytes of a region from offset off on, one-sidedly;
// both must be multiples of 8. What it returns is what stood in the server's
// memory word by word, at moments of the READ: it is for looking, and carries
// none of the promises of a get. It fails with ErrRange if the region or the
// bytes do not exist. In a cluster each node has its own regions: see Node.
func (c *Client) ReadRegion(ctx context.Context, region uint32, off uint64, dst []byte) error {
	if c.fleet != nil {
		return c.fail("read-region", nil, errNameNode)
	}
	return c.solo.readRegion(ctx, region, off, dst)
}

func (c *peer) readRegion(ctx context.Context, region uint32, off uint64, dst []byte) error {
	p := c.begin(ctx)
	return c.ask(&p, "read-region", nil, func(s *session) error {
		v := s.view.Load()
		for _, r := range v.Regions {
			if r.ID != region {
				continue
			}
			if off%8 != 0 || len(dst)%8 != 0 || off > r.Length || uint64(len(dst)) > r.Length-off {
				return fmt.Errorf("%w: %d bytes at %d of a region of %d; both must be multiples of 8",
					ErrRange, len(dst), off, r.Length)
			}
			return s.readRaw(&p, v, r.Base+layout.PlaceOfByte(off), dst)
		}
		return fmt.Errorf("%w: no region %d", ErrRange, region)
	})
}

func (s *session) readRaw(p *patience, v *view, place layout.Place, dst []byte) error {
	for len(dst) > 0 {
		n := min(len(dst), readWindow)
		b := s.newBatch(v)
		if _, err := b.add(place, n); err != nil {
			b.release()
			return err
		}
		mine, err := b.run(p)
		if !mine {
			return err
		}
		if err == nil {
			copy(dst, b.bytes(0))
		}
		b.release()
		if err != nil {
			return err
		}
		dst, place = dst[n:], place+layout.PlaceOfByte(uint64(n))
	}
	return nil
}
