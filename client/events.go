package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// EventOp is what happened to a key.
type EventOp uint8

const (
	EventPut    = EventOp(wire.EventPut) // put, or incremented
	EventDelete = EventOp(wire.EventDelete)
	EventExpire = EventOp(wire.EventExpire) // its time was over
	EventTouch  = EventOp(wire.EventTouch)  // another expiry and version, the value as it was
	// EventSkip is no change of a key: changes between the event before it and
	// the one behind it may have been missed. A program that needs to know all
	// changes reads the keys again.
	EventSkip EventOp = 255
)

// String names the operation.
func (o EventOp) String() string {
	if o == EventSkip {
		return "skip"
	}
	return wire.EventOp(o).String()
}

// An Event is one change of one key, as Watch tells it. Its slices belong to the
// caller.
type Event struct {
	Op      EventOp
	Key     []byte // nil for EventSkip
	Version uint64 // that the key has by it; rises from event to event
	// Value is that of an EventPut if HasValue. Otherwise it was not asked for,
	// or is too large for the server to keep and must be got by its key.
	Value    []byte
	HasValue bool
	Size     int64  // bytes of the value of an EventPut, whether it is here or not
	Node     string // whose event it is, in a cluster
	// More says that the next event is of the same batch.
	More    bool
	Skipped bool // Op is EventSkip
	// Position is behind this event: where a later Watch goes on.
	Position Position
}

// WatchOptions say what Watch tells. The zero value is: the keys, from now.
type WatchOptions struct {
	From   Position // only what was written behind it
	Values bool     // the values of puts too
}

// maxPoll is for how long the server is asked to wait for an event.
const maxPoll = 10 * time.Second

// Position returns the place in the order of all writes that the store has reached:
// what is acknowledged later lies behind it. A program that reads some keys and
// then wants to learn what becomes of them takes it first, and watches from
// there. It fails as Get does, and with ErrUnsupported if the server keeps no
// events.
func (c *Client) Position(ctx context.Context) (Position, error) {
	p := c.rt().Only()
	if p == nil {
		return positionOfAll(ctx, c.rt())
	}
	page, err := poll(ctx, p, nil, WatchOptions{})
	return page.next, err
}

// Watch tells of the changes of all keys that begin with prefix, in the order in
// which they took effect, as they happen:
//
//	for event, err := range c.Watch(ctx, []byte("user:"), client.WatchOptions{Values: true}) {
//		if err != nil { … }
//		…
//	}
//
// An event is told after a get can see it, and a batch is told whole: all of its
// events but the last have More. The server keeps the newest events only, in a
// bounded ring; a program that is too slow for it is told by EventSkip that
// there is a gap, and so is one whose server has crashed meanwhile. Nothing is
// fetched ahead: while the loop's body runs the server is not asked.
//
// The loop goes on over reconnects. It ends when ctx does, or with an error as of
// Get, when the server could not be reached for Config.Timeout, say; a later
// Watch from the last event's Position goes on behind it. It also fails with
// ErrUnsupported if the server keeps no events. Where more watch than the server
// lets wait, the others ask it now and then.
//
// In a cluster the order is that of each node, or where shards have replicas of each group; events of different nodes come as
// they come, batches whole. Each node is asked by itself, for one page at a time.
// One that cannot be reached is asked again for as long as others can, and told
// of in the log: what happens there meanwhile comes when it is back, or is told
// by an EventSkip. The loop ends when no node can be reached. A group is asked for at
// whoever leads it; all its replicas keep the newest events, so the watch goes on at the next leader where it was.
func (c *Client) Watch(ctx context.Context, prefix []byte, opts WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		opts := opts // each loop begins anew
		if len(prefix) > layout.MaxKeyLen {
			yield(Event{}, c.fail("watch", prefix, fmt.Errorf("%w: no key is longer than %d bytes", ErrKeyTooLarge, layout.MaxKeyLen)))
			return
		}
		p := c.rt().Only()
		if p == nil {
			watchAll(ctx, c.rt(), prefix, opts, yield)
			return
		}
		for {
			page, err := poll(ctx, p, prefix, opts)
			if err != nil {
				yield(Event{}, err)
				return
			}
			if page.skipped {
				first := page.next
				if len(page.events) > 0 { // to be told again if the caller ends here
					first = opts.From
				}
				if !yield(Event{Op: EventSkip, Skipped: true, Position: first}, nil) {
					return
				}
			}
			for _, e := range page.events {
				if !yield(e, nil) {
					return
				}
			}
			opts.From = page.next
		}
	}
}

// An eventPage is what one poll has brought, in memory of its own.
type eventPage struct {
	events  []Event
	next    Position
	skipped bool
	node    string // that has answered
}

// A pollAt is of what a poll asks for the events.
type pollAt struct {
	node  string // whose cursor in a Position it is: a node's, or a group's (groupName)
	group uint32 // 0: those of a node
	most  time.Duration
}

// poll asks once. The server answers when there is something, or at once where
// the position is that of now, or after a while with nothing.
func poll(ctx context.Context, c *peer.Peer, prefix []byte, opts WatchOptions) (page eventPage, err error) {
	p := c.Begin(ctx)
	pause, hurry := base.RetryFirst, false
	for {
		err = c.Ask(&p, "watch", prefix, func(s *session.Session) (err error) {
			page, err = pollOnce(c, &p, s, pollAt{node: c.Node, most: maxPoll}, prefix, opts, hurry)
			return err
		})
		if !errors.Is(err, ErrOverloaded) || p.Over() != nil {
			return page, err
		}
		// So many wait at the server that this one cannot: it asks now and then.
		hurry = true
		p.Rest(pause)
		pause = min(2*pause, base.RetryMost)
	}
}

// pollOnce is one request on one session. What waits at the server has a slot and a
// credit meanwhile, so it only waits if others find one too, and not in a hurry.
func pollOnce(c *peer.Peer, p *base.Limit, s *session.Session, at pollAt, prefix []byte, opts WatchOptions, hurry bool) (page eventPage, err error) {
	wait := min(at.most, s.Config.Timeout/2)
	if deadline, ok := p.Ctx.Deadline(); ok {
		wait = min(wait, max(time.Until(deadline), 0))
	} else { // some of the time may be gone: with connecting, say
		wait = min(wait, max(p.Left()/2, 0))
	}
	sl := s.TryOpenLeaving(p, 1)
	if sl == nil {
		hurry = true
		s.AskForCredits()
	}
	if hurry {
		wait = 0
	}
	if sl == nil {
		if sl, err = s.Open(p); err != nil {
			return page, err
		}
	}
	r, err := sl.Call(p, wire.AppendWatch(sl.Buf[:0], sl.ID(), wire.Watch{
		From: opts.From.of(at.node), WaitMillis: uint32(wait.Milliseconds()), Values: opts.Values, Group: at.group, Prefix: prefix,
	}))
	if err != nil {
		return page, err
	}
	m, err := wire.ParseWatchReply(r.Body)
	if err == nil && (m.Next == wire.Cursor{} || len(prefix) > layout.MaxKeyLen) {
		err = errors.New("a page that leads nowhere")
	}
	if err != nil {
		return page, r.Malformed(err)
	}
	page = eventPage{next: Position{c: m.Next}, skipped: m.Skipped, node: c.Node}
	for e := range m.Events {
		both := make([]byte, 0, len(e.Key)+len(e.Value))
		both = append(append(both, e.Key...), e.Value...)
		out := Event{
			Op: EventOp(e.Op), Key: both[:len(e.Key):len(e.Key)], Version: e.Version, HasValue: e.HasValue,
			Size: int64(e.ValueLen), More: e.More, Position: Position{c: wire.Cursor{Incarnation: m.Next.Incarnation, Version: e.Version}}, Node: c.Node,
		}
		if e.HasValue {
			out.Value = both[len(e.Key):]
		}
		page.events = append(page.events, out)
	}
	r.Done()
	if hurry && len(page.events) == 0 {
		p.Rest(pollRest)
	}
	return page, nil
}

// pollRest is the rest between two polls that do not wait at the server.
const pollRest = 50 * time.Millisecond
