package handle

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A watch is a long poll. What is behind its cursor is looked at on the pool;
// if there is nothing it waits in a table, on no goroutine, until the store
// notes an event of its prefix or its time is over. It keeps the receive it
// came in and one credit; how many wait is bounded, per session and in all.

// MaxPolls bounds the waiting watches of one session: where shards have replicas a client's watch of all keys is one of
// each group, and all of them may be led by one node.
const MaxPolls = 32

// A poll is how far a watch has come. It is part of its request.
type poll struct {
	begun bool
	from  store.WatchCursor
	until int64 // by the clock of the space: the answer is due whatever there is
}

// A parked watch is one that waits. Guarded by watches.mu.
type parked struct {
	r      *op
	timer  *time.Timer
	waiter *store.EventWaiter // nil until the store has it
}

// watches are the waiting ones.
type watches struct {
	mu     sync.Mutex
	all    map[*parked]struct{}
	polls  map[*auth.Login]int // how many of all are each login's
	closed bool
}

// watch answers a watch, or has it wait. It runs on the pool; each time the
// request is woken it runs again.
func (r *op) watch(m wire.Watch) {
	s, env := r.Session, r.c.env
	if !r.poll.begun {
		if !confirmedAll(r) { // so that the cursor, whoever gave it out, is not ahead of what is published here
			return
		}
		wait := min(time.Duration(m.WaitMillis)*time.Millisecond, env.MaxPoll)
		r.poll = poll{begun: true, until: env.Clock.Now() + int64(wait), from: cursorHere(r, m.From)}
	}
	room := wire.WatchRoom(s.ReplySize)
	if m.MaxBytes > 0 {
		// The longest key without its value must fit, or the watch could not go on.
		room = min(room, max(int(m.MaxBytes), wire.EventSize(maxKey, 0)))
	}
	req := store.WatchRequest{
		From: r.poll.from, Prefix: m.Prefix, Values: m.Values, MaxBytes: room, Overhead: wire.EventSize(0, 0),
	}
	fresh := req.From == store.WatchCursor{}
	for {
		page, err := look(r, req)
		if err != nil {
			r.refuse(err)
			return
		}
		page.Events = slices.DeleteFunc(page.Events, func(e store.Event) bool { return env.foreign(e.Key) })
		switch left := r.poll.until - env.Clock.Now(); {
		case len(page.Events) > 0 || page.Skipped || fresh:
			r.events(page)
			return
		case page.More && s.Context().Err() == nil:
			// Many events of others: on, but others want the store's lock too.
		case left <= 0 || s.Context().Err() != nil || r.Grants() > 1: // with credits that others of the session wait for
			r.events(page)
			return
		default:
			r.poll.from = page.Next
			if r.c.h.watches.park(r, m.Prefix, time.Duration(left)) {
				return
			}
		}
		req.From = page.Next
	}
}

// look asks the store for the events behind a cursor, of the group that is asked for, if one is.
func look(r *op, req store.WatchRequest) (store.WatchPage, error) {
	if r.shards != nil {
		return store.WatchGroup(r.c.env.Store, r.shards[0], req)
	}
	return r.c.env.Store.Watch(req)
}

// A cursor of a group names the group where others name an incarnation of a store. To a client it names the cluster, too,
// or one of another cluster would be good here, and lead to wherever this one is by now.

// lifeOf is what the cursors of the group that is asked for have in place of an incarnation; 0: no group is.
func lifeOf(r *op) uint64 {
	if r.shards == nil {
		return 0
	}
	own := r.c.env.Owned.Shards()
	id := own.Map.Cluster
	return max(1, xxhash.Sum64(binary.LittleEndian.AppendUint32(id[:], own.Group(r.shards[0]))))
}

// cursorHere is a client's cursor as the store has it. One that is not the group's is behind nothing.
func cursorHere(r *op, c wire.Cursor) store.WatchCursor {
	at := store.WatchCursor{Incarnation: c.Incarnation, Version: layout.Version(c.Version)}
	if life := lifeOf(r); life != 0 && c != (wire.Cursor{}) {
		if at.Incarnation = uint64(r.c.env.Owned.Shards().Group(r.shards[0])); c.Incarnation != life {
			at.Incarnation = math.MaxUint64
		}
	}
	return at
}

// cursorThere is a cursor of the store as clients have it.
func cursorThere(r *op, c store.WatchCursor) wire.Cursor {
	return wire.Cursor{Incarnation: cmp.Or(lifeOf(r), c.Incarnation), Version: uint64(c.Version)}
}

// events answers with a page.
func (r *op) events(p store.WatchPage) {
	need := r.Session.ReplySize - wire.WatchRoom(r.Session.ReplySize)
	for i := range p.Events {
		need += wire.EventSize(len(p.Events[i].Key), len(p.Events[i].Value))
	}
	r.Answer(need, func(dst []byte) []byte {
		start := len(dst)
		dst = wire.BeginWatchReply(dst, r.Header.ID)
		for _, e := range p.Events {
			dst = wire.AppendEvent(dst, wire.Event{
				Version: uint64(e.Version), Op: wire.EventOp(e.Op), More: e.More, Key: e.Key,
				ValueLen: uint32(e.ValLen), Value: e.Value, HasValue: e.HasValue,
			})
		}
		return wire.EndWatchReply(dst, start, uint32(len(p.Events)), cursorThere(r, p.Next), p.Skipped)
	})
}

// The operations have the same numbers here and there.
var _ = [1]struct{}{}[wire.EventPut-wire.EventOp(store.EventPut)|wire.EventDelete-wire.EventOp(store.EventDelete)|
	wire.EventExpire-wire.EventOp(store.EventExpire)|wire.EventTouch-wire.EventOp(store.EventTouch)]

// park has r wait for an event or the time. true: r is not the caller's any
// more. false: there may be events behind its cursor by now, or its session is
// dead.
func (ws *watches) park(r *op, prefix []byte, wait time.Duration) bool {
	env, login := r.c.env, r.Session.Login
	p, from, shards := &parked{r: r}, r.poll.from, r.shards
	ws.mu.Lock()
	switch {
	case ws.closed:
		ws.mu.Unlock()
		r.Fail(wire.StatusClosing, "")
		return true
	case r.c.polls >= MaxPolls || len(ws.all) >= env.MaxWatches || login.Name != "" && ws.polls[login] >= env.TenantWatches:
		ws.mu.Unlock()
		r.Fail(wire.StatusOverloaded, "too many watches wait")
		return true
	case r.Session.Context().Err() != nil: // drop has been here, or will not find it
		ws.mu.Unlock()
		return false
	}
	if ws.all == nil {
		ws.all, ws.polls = make(map[*parked]struct{}), make(map[*auth.Login]int)
	}
	ws.all[p] = struct{}{}
	r.c.polls++
	ws.polls[login]++
	p.timer = time.AfterFunc(wait, func() { ws.wake(env, p) })
	ws.mu.Unlock()
	// From here on the watch may be woken at any moment, so r may be in use elsewhere.
	wake := func() { ws.wakeByStore(env, p) }
	var waiter *store.EventWaiter
	if shards != nil {
		waiter = store.AwaitGroup(env.Store, shards[0], prefix, from, wake)
	} else {
		waiter = env.Store.AwaitEvents(prefix, from, wake)
	}
	ws.mu.Lock()
	_, waits := ws.all[p]
	if waits && waiter != nil {
		p.waiter = waiter
		ws.mu.Unlock()
		return true
	}
	if waits {
		ws.removeLocked(p)
	}
	ws.mu.Unlock()
	env.Store.ForgetEvents(waiter)
	return !waits
}

// removeLocked takes p out. Its request is the caller's.
func (ws *watches) removeLocked(p *parked) {
	delete(ws.all, p)
	p.r.c.polls--
	if ws.polls[p.r.Session.Login]--; ws.polls[p.r.Session.Login] == 0 {
		delete(ws.polls, p.r.Session.Login)
	}
	p.timer.Stop()
}

// wake lets a watch look again, because its time is over.
func (ws *watches) wake(env *Env, p *parked) {
	if waiter, ok := ws.take(p); ok {
		env.Store.ForgetEvents(waiter)
		submit(env.Scans, p.r)
	}
}

// wakeByStore is wake on the store's publishing goroutine: the store has
// forgotten the waiter and is not to be called.
func (ws *watches) wakeByStore(env *Env, p *parked) {
	if _, ok := ws.take(p); ok {
		submit(env.Scans, p.r)
	}
}

// take takes p out if it still waits.
func (ws *watches) take(p *parked) (*store.EventWaiter, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.all[p]; !ok {
		return nil, false
	}
	ws.removeLocked(p)
	return p.waiter, true
}

// takeAll takes out those of a session, or all of them for nil.
func (ws *watches) takeAll(c *conn) (out []*parked) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for p := range ws.all {
		if c == nil || p.r.c == c {
			ws.removeLocked(p)
			out = append(out, p)
		}
	}
	ws.closed = ws.closed || c == nil
	return out
}

// drop ends the watches of a dead session.
func (ws *watches) drop(c *conn) {
	for _, p := range ws.takeAll(c) {
		c.env.Store.ForgetEvents(p.waiter)
		p.r.Drop()
	}
}

// close answers every watch: the server is closing. No watch waits from then on.
func (ws *watches) close() {
	for _, p := range ws.takeAll(nil) {
		s := p.r.Session
		p.r.c.env.Store.ForgetEvents(p.waiter)
		p.r.Fail(wire.StatusClosing, "")
		s.Flush()
	}
}

// waiting returns how many watches wait.
func (ws *watches) waiting() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all)
}
