package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/deaf"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// noHandler is the handler of sessions that are not to come so far.
type noHandler struct{ t *testing.T }

func (h noHandler) Open(*Session) (Conn, wire.Welcome, error) {
	h.t.Error("a session is opened")
	return nil, wire.Welcome{}, context.Canceled
}

// testGroup is a group with a lane over a device with nobody at the other end.
func testGroup(t *testing.T, h Handler) (*Group, *Rail) {
	t.Helper()
	bounds := new(base.Bounds)
	g := NewGroup(Config{
		Lease: time.Second, Beat: 100 * time.Millisecond, Keepalive: time.Minute,
		Idle: 5 * time.Minute, SendTimeout: 5 * time.Minute, SetupTimeout: 5 * time.Minute,
		Credits: 8, InitialCredits: 4, RequestSize: MinReplySize, ReplySize: MinReplySize,
		ReceiveBytes: 64 * MinReplySize, ReplyBytes: 64 * MinReplySize,
		MaxSessions: 8, Lanes: 1, MemoryKind: mem.Heap,
	}, Env{
		Registry: NewRegistry(RegistryLimits{Sessions: 8, PerHost: 8, Setups: 8, SetupsPerHost: 8}, bounds),
		Handler:  h, Counters: new(base.Counters), Bounds: bounds, Log: base.NewLog(slog.New(slog.DiscardHandler)),
		Clock: base.NewClock(), Fence: base.NewFence(), Draining: new(atomic.Bool),
		Fatal: func(err error) { t.Errorf("fatal: %v", err) }, Shared: func() bool { return false },
	})
	ctx, cancel := context.WithCancel(context.Background())
	opened := base.NewDevice(nil, "", deaf.Device{}, func() bool { return false }, func(*base.Device, error) {})
	r, err := NewRail(ctx, g, opened, 0)
	if err == nil {
		err = r.MakeLanes(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.RunLanes()
	t.Cleanup(func() {
		cancel()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, r
}

// testSession is a session of the group that has not said Hello. over is closed when it has
// ended.
func testSession(t *testing.T, g *Group, r *Rail) (s *Session, q *deaf.QP, over <-chan struct{}) {
	t.Helper()
	return testSessionOf(t, g, r, wire.VersionMax)
}

// testSessionOf is one of a version of the protocol.
func testSessionOf(t *testing.T, g *Group, r *Rail, version uint8) (s *Session, q *deaf.QP, over <-chan struct{}) {
	t.Helper()
	place, err := g.Registry.Admit(Source{"host", "net"})
	if place == nil {
		t.Fatal(err)
	}
	login := &auth.Login{Tenant: auth.Tenant{MaxSessions: 8, MaxRequests: 8, MaxInflightBytes: 1 << 20}}
	req := deaf.NewRequest()
	k := Knock{ConnRequest: req, Connect: deaf.Connect, Version: version, Login: login, Place: place}
	if s, err = g.Begin(r.Pick(), k); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(context.Background(), k)
	}()
	q = req.Accepted(t, nil)
	q.Version = version
	return s, q, done
}

// eventually waits until is says yes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestEndedUnderItsFirstMessage: a session ends, because its time to say Hello is over,
// while the lane looks at a message that is no Hello. There is no handler for such a
// session, and the message is a violation like any other before Hello.
func TestEndedUnderItsFirstMessage(t *testing.T) {
	for _, c := range []struct {
		name string
		msg  []byte
	}{
		{"put", wire.AppendPut(nil, 1, wire.Put{Key: []byte("k"), Value: []byte("v")})},
		{"ping", wire.AppendPing(nil, 1, wire.Ping{})},
		{"document", wire.AppendDocument(nil, 1, wire.Document{Kind: wire.DocumentStats})},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, r := testGroup(t, noHandler{t})
			s, q, over := testSession(t, g, r)
			eventually(t, "it is connected", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.connected
			})
			// The lane takes credits that a message brings under the session's lock, after
			// it has found that the session has not ended.
			wire.SetCredits(c.msg, 1)
			s.mu.Lock()
			q.Arrive(t, c.msg)
			eventually(t, "the lane has the message", func() bool { return s.allowed.Load() == 0 || s.pinging.Load() })
			s.endLocked(base.CauseSetup, nil)
			s.mu.Unlock()
			eventually(t, "the message is handled", func() bool { return !s.Busy() })
			q.End()
			<-over
			if n := g.Counters.Ends[base.CauseSetup].Load(); n != 1 {
				t.Errorf("%d sessions ended because they said no Hello in time", n)
			}
		})
	}
}

// TestFetchTime: the largest value has a minute more than the smallest.
func TestFetchTime(t *testing.T) {
	if got := fetchTime(64<<20, 15*time.Second); got != 75*time.Second {
		t.Errorf("the largest value may take %v", got)
	}
}
