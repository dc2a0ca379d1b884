package write

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// The tests of this package run against a fake server in virtual time (synctest), so rests
// and deadlines cost nothing and are compared exactly. The fake applies writes as a server
// does, once for each name; a test draws what becomes of each copy.

var key = []byte("the key")

// A fate is what becomes of one copy of a write.
type fate uint8

const (
	answered   fate = iota
	lostBefore      // it does not arrive, and the connection ends
	lostAfter       // it takes effect, and the connection ends
	unheard         // it takes effect, and no reply comes
	overloaded      // refused for want of room
	closing         // refused because the server is about to end
	unknown         // it takes effect, and the server says that it does not know
	nonsense        // it takes effect, and the reply does not parse
	wrongType       // it takes effect, and the reply is to another request
	notNumber       // refused, in order: the value is no number
	tooOldFor       // the server says that it has forgotten the request
)

// A copied is one copy of a write as the fake has seen it.
type copied struct {
	typ wire.Type
	id  wire.RequestID
	key string
	at  time.Time
	put wire.PutLarge // of a large one
	val string        // of a small put
}

// A rig is a router with one peer, whose server is a fake.
type rig struct {
	*clienttest.Server
	t      *testing.T
	clock  *clienttest.Clock // of leases; by it a write's age is counted
	router *route.Router
	c      *peer.Peer

	mu     sync.Mutex
	copies []copied
	seen   map[uint16]uint64 // by slot: the seq that was applied last
	done   map[string]int    // by key: how often a write took effect
	order  []string          // the values of small puts, as they took effect
	fates  []fate            // of the next copies; then all are answered
	fate   func(copied) fate // in place of fates; or nil
	reply  wire.WriteReply
}

// inBubble runs f in virtual time. prepare may change the configuration.
func inBubble(t *testing.T, prepare func(*rig, *base.Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			Server: clienttest.NewServer(3), t: t, clock: clienttest.NewClock(),
			seen: map[uint16]uint64{}, done: map[string]int{}, reply: wire.WriteReply{Version: 42, Applied: true},
		}
		r.OnRequest = r.serve
		cfg := newConfig(r.Server)
		if prepare != nil {
			prepare(r, cfg)
		}
		r.router = dial(t, cfg, r.clock)
		r.c = r.router.Only()
		f(t, r)
		r.settled()
		r.router.Close()
	})
}

func newConfig(f *clienttest.Server) *base.Config {
	return &base.Config{
		Servers: []string{"fake:1"}, Fabrics: []rdma.Fabric{f}, DialOnce: true,
		Timeout: 5 * time.Second, DialTimeout: 3 * time.Second, LeaseKeep: -1,
		CacheEntries: 64, MaxInflight: 4, MaxWaiting: 64, MaxReads: 512, BufferBytes: 64 << 20, StagingBytes: 4 << 20, AsyncWindow: 64, AsyncBytes: 1 << 20,
		Wait: wait.Event, Logger: slog.New(slog.DiscardHandler),
	}
}

func dial(t *testing.T, cfg *base.Config, clock *clienttest.Clock) *route.Router {
	t.Helper()
	f, err := route.Dial(world.With(t.Context(), world.World{Heap: true, Now: clock.Now}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// parse reads a write.
func parse(h wire.Header, body []byte) (c copied, ok bool) {
	c.typ = h.Type
	var err error
	switch h.Type {
	case wire.TypePut:
		m, e := wire.ParsePut(body)
		c.id, c.key, c.val, err = m.ID, string(m.Key), string(m.Value), e
	case wire.TypePutLarge:
		m, e := wire.ParsePutLarge(body)
		c.id, c.key, c.put, err = m.ID, string(m.Key), m, e
	case wire.TypeDelete:
		m, e := wire.ParseDelete(body)
		c.id, c.key, err = m.ID, string(m.Key), e
	case wire.TypeUpdate:
		m, e := wire.ParseUpdate(body)
		c.id, c.key, err = m.ID, string(m.Key), e
	case wire.TypeBatch:
		m, e := wire.ParseBatch(body)
		c.id, err = m.ID, e
	case wire.TypeBatchLarge:
		m, e := wire.ParseBatchLarge(body)
		c.id, err = m.ID, e
	default:
		return c, false
	}
	if err != nil {
		panic(fmt.Sprintf("%v: %v", h.Type, err))
	}
	return c, true
}

// serve is the fake's hook.
func (r *rig) serve(h wire.Header, msg []byte) ([]byte, bool) {
	c, ok := parse(h, wire.Body(msg))
	if !ok {
		return nil, false
	}
	c.at = time.Now()
	c.put.Key = nil // a view of the message
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies = append(r.copies, c)
	what := answered
	if r.fate != nil {
		what = r.fate(c)
	} else if len(r.fates) > 0 {
		what, r.fates = r.fates[0], r.fates[1:]
	}
	refuse := func(s wire.Status) ([]byte, bool) {
		out := wire.AppendError(nil, h.Type, h.ID, s, "")
		wire.SetCredits(out, 1)
		return out, true
	}
	switch what {
	case lostBefore:
		go r.cut()
		return nil, true
	case overloaded:
		return refuse(wire.StatusOverloaded)
	case closing:
		return refuse(wire.StatusClosing)
	case notNumber:
		return refuse(wire.StatusNotNumber)
	case tooOldFor:
		return refuse(wire.StatusUnknown)
	}
	if c.id.Seq > r.seen[c.id.Slot] {
		r.seen[c.id.Slot] = c.id.Seq
		r.done[c.key]++
		r.order = append(r.order, c.val)
	}
	out := wire.AppendWriteReply(nil, h.Type, h.ID, r.reply)
	switch what {
	case lostAfter:
		go r.cut()
		return nil, true
	case unheard:
		return nil, true
	case unknown:
		return refuse(wire.StatusUnknown)
	case nonsense:
		out[wire.HeaderSize+16] = 77 // neither applied nor not
	case wrongType:
		out = wire.AppendPingReply(nil, h.ID, wire.PingReply{})
	}
	wire.SetCredits(out, 1)
	return out, true
}

// cut ends the connections that there are. The one that is made last may not be the one that a
// copy came by: where a server is about to end, calls stay on the old one.
func (r *rig) cut() {
	r.Mu.Lock()
	qps := slices.Clone(r.QPs)
	r.Mu.Unlock()
	for _, q := range qps {
		q.Die(rdma.ErrPeerGone)
	}
}

// draw forgets the copies so far, and says what becomes of the next ones.
func (r *rig) draw(fates ...fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies, r.fates, r.fate = nil, fates, nil
}

// drawing is draw with a choice for each copy. f is called with r.mu locked.
func (r *rig) drawing(f func(copied) fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies, r.fates, r.fate = nil, nil, f
}

// sent are the copies since the last draw.
func (r *rig) sent() []copied {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copies
}

// put stores a value under key.
func (r *rig) put(value []byte) error {
	w, err := NewPut(key, value, wire.Terms{})
	if err != nil {
		return err
	}
	return Do(r.t.Context(), r.router, "put", &w)
}

// settled compares what calls hold with nothing: each has given back its name, and its
// staging memory once the server's answer has come.
func (r *rig) settled() {
	r.t.Helper()
	synctest.Wait()
	p := r.c.Begin(r.t.Context())
	var ids []wire.RequestID
	for range r.c.Config().MaxInflight {
		id, ok := r.c.IDs.TryTake()
		if !ok {
			r.t.Errorf("%d of %d names are free", len(ids), r.c.Config().MaxInflight)
			break
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		r.c.IDs.Put(id)
	}
	if s, err := r.c.Session(&p); err == nil {
		if out := s.Device.Staging.Usage().Out; out != 0 {
			r.t.Errorf("%d staging buffers are out", out)
		}
	}
}
