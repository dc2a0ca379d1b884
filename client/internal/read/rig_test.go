package read

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The tests of this package run against a fake server in virtual time (synctest). The
// server's memory is an array, so a test decides what each READ brings. Goroutines of the
// peer work only while a test waits, so the READs and the requests of a call are counted
// exactly.

// Places of the fake's memory. Items a and b have room for 128 KiB each, c for 1.5 MiB.
var (
	key   = []byte("the key")
	seg   = clienttest.SegmentPlace
	itemA = clienttest.ItemsPlace + layout.PlaceOfByte(1<<17)
	itemB = clienttest.ItemsPlace + layout.PlaceOfByte(1<<18)
	itemC = clienttest.ItemsPlace + layout.PlaceOfByte(3<<17)
)

// shortSpin is for how long a READ into a sink is polled for.
const shortSpin = 100 * time.Microsecond

// A rig is a router with one peer, whose server is a fake.
type rig struct {
	*clienttest.Server
	t      *testing.T
	clock  *clienttest.Clock // of leases; the fake's time stands still unless a test moves it
	router *route.Router
	c      *peer.Peer
	s      *session.Session

	mu     sync.Mutex
	reads  []string                                              // what was READ, in order
	sent   []wire.Type                                           // what was asked for by SEND, in order
	onRead func(place layout.Place, dst []byte)                  // changes what a READ has brought; Mem is locked
	answer map[wire.Type]func(h wire.Header, body []byte) []byte // requests that the fake does not know
}

// inBubble runs f in virtual time, with a server that holds key = "one" at itemA. prepare
// may change the server before the client connects.
func inBubble(t *testing.T, prepare func(*rig), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			Server: clienttest.NewServer(77), t: t, clock: clienttest.NewClock(),
			answer: map[wire.Type]func(wire.Header, []byte) []byte{},
		}
		r.Change(func(mem []byte) {
			r.BuildIndex(mem, seg)
			r.PutItem(mem, seg, itemA, key, []byte("one"), 1)
		})
		r.OnRead, r.OnRequest = r.serveRead, r.serveRequest
		if prepare != nil {
			prepare(r)
		}
		cfg := newConfig(r.Server)
		if r.Sinks.On {
			cfg.Wait, cfg.Spin = wait.Poll, shortSpin
		}
		r.router = dial(t, cfg, r.clock)
		defer r.router.Close()
		r.c = r.router.Only()
		r.s = r.c.Current()
		r.reset()
		f(t, r)
	})
}

func newConfig(f *clienttest.Server) *base.Config {
	return &base.Config{
		Servers: []string{"fake:1"}, Fabrics: []rdma.Fabric{f}, DialOnce: true,
		Timeout: 5 * time.Second, DialTimeout: 3 * time.Second, LeaseKeep: -1,
		CacheEntries: 64, MaxInflight: 8, MaxWaiting: 64, MaxReads: 512, BufferBytes: 64 << 20, StagingBytes: 1 << 20,
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

// serveRead is the fake's hook.
func (r *rig) serveRead(at uint64, dst []byte) {
	copy(dst, r.Mem[at:])
	place := layout.PlaceOfByte(at)
	r.mu.Lock()
	r.reads = append(r.reads, placeName(place))
	for range chunksIn(place, dst) - 1 {
		r.reads = append(r.reads, "chunk") // side by side, with one READ
	}
	hook := r.onRead
	r.mu.Unlock()
	if hook != nil {
		hook(place, dst)
	}
}

// chunksIn is how many chunks of the item at itemC a READ brings.
func chunksIn(p layout.Place, dst []byte) int {
	if p <= itemC {
		return 0
	}
	return (len(dst) + layout.ChunkSize - 1) / layout.ChunkSize
}

// placeName is what stands at a place.
func placeName(p layout.Place) string {
	switch at := p.Byte(); {
	case at == layout.BeatOffset:
		return "beat"
	case at == 4096:
		return "root"
	case p == clienttest.DirPlace:
		return "directory"
	case at >= seg.Byte() && at < seg.Byte()+uint64(layout.SegmentBytes(0)):
		return "buckets"
	case p == itemA:
		return "a"
	case p == itemB:
		return "b"
	case p == itemC:
		return "c"
	case p > itemC:
		return "chunk"
	default:
		return fmt.Sprint(p)
	}
}

// serveRequest is the fake's hook.
func (r *rig) serveRequest(h wire.Header, msg []byte) ([]byte, bool) {
	r.mu.Lock()
	if h.Type != wire.TypePing {
		r.sent = append(r.sent, h.Type)
	}
	answer := r.answer[h.Type]
	r.mu.Unlock()
	if answer == nil {
		return nil, false
	}
	out := answer(h, wire.Body(msg))
	if len(out) > 0 {
		wire.SetCredits(out, 1)
	}
	return out, true
}

// on has the fake answer requests of a type.
func (r *rig) on(t wire.Type, f func(h wire.Header, body []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer[t] = f
}

// refusing answers with a status.
func refusing(s wire.Status) func(wire.Header, []byte) []byte {
	return func(h wire.Header, _ []byte) []byte { return wire.AppendError(nil, h.Type, h.ID, s, "") }
}

// saying answers a Get with a value of version 9.
func saying(value string) func(wire.Header, []byte) []byte {
	return func(h wire.Header, _ []byte) []byte {
		return wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 9, Value: []byte(value)})
	}
}

// hook has f change what READs bring.
func (r *rig) hook(f func(place layout.Place, dst []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onRead = f
}

// reset forgets what was READ and asked for.
func (r *rig) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads, r.sent = nil, nil
}

// expect compares what was READ since the last look, words with blanks between them, and
// what was asked for by SEND.
func (r *rig) expect(reads string, sent ...wire.Type) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.reads, " "); got != reads {
		r.t.Errorf("READ %q, want %q", got, reads)
	}
	if !slices.Equal(r.sent, sent) {
		r.t.Errorf("asked by SEND %v, want %v", r.sent, sent)
	}
	r.reads, r.sent = nil, nil
}

// expectBeside is expect without the beats that the keeper READs by itself.
func (r *rig) expectBeside(reads string, sent ...wire.Type) {
	r.t.Helper()
	r.mu.Lock()
	r.reads = slices.DeleteFunc(r.reads, func(what string) bool { return what == "beat" })
	r.mu.Unlock()
	r.expect(reads, sent...)
}

// get gets key.
func (r *rig) get() (string, *Query, error) {
	w := &Query{N: -1}
	err := Get(r.t.Context(), r.router, "get", key, w)
	return string(w.Dst), w, err
}

// must gets key, whose value must be want, by that path.
func (r *rig) must(want string, path base.Path) {
	r.t.Helper()
	got, w, err := r.get()
	if err != nil || got != want || w.Path != path {
		r.t.Fatalf("got %.40q (%d bytes) by %v, %v; want %.40q by %v", got, len(got), w.Path, err, want, path)
	}
}

// counters is what was counted so far.
func (r *rig) counters() base.Counters { return r.c.Counters() }

// move puts key = value at a place, and makes the item where it was dead.
func (r *rig) move(from, to layout.Place, value string, old, v layout.Version) {
	r.Change(func(mem []byte) { r.moveLocked(mem, from, to, value, old, v) })
}

func (r *rig) moveLocked(mem []byte, from, to layout.Place, value string, old, v layout.Version) {
	layout.SetState(mem[from.Byte():], old, layout.Dead)
	r.PutItem(mem, seg, to, key, []byte(value), v)
}

// value is n bytes that differ from one another.
func value(n int, of byte) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = of + byte(i/8)*31 + byte(i)
	}
	return string(b)
}
