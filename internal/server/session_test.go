package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// ended waits until n sessions (or requests for one) have ended of a cause.
func ended(t testing.TB, srv *Server, c base.Cause, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d ended of cause %v", n, c), func() bool { return srv.main.Counters.Ends[c].Load() == n })
}

func TestSecrets(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Secret = []byte("a shared secret!") })
	good := dial(t, srv, peerOptions{secret: []byte("a shared secret!")})
	for i, secret := range []string{"", "another secret!!", "a shared secret"} {
		_, err := tryDial(t, srv, peerOptions{secret: []byte(secret)})
		wantStatus(t, err, wire.StatusAuth)
		ended(t, srv, base.CauseAuth, uint64(i+1))
	}
	// A captured request, played again: the server's nonce is fresh, so the
	// one who plays it cannot say Hello.
	replay := dial(t, srv, peerOptions{connect: good.connect, noHello: true})
	if err := replay.hello(peerOptions{secret: []byte("guessed secret..")}); err == nil {
		t.Error("a replayed connection was let in")
	}
	ended(t, srv, base.CauseAuth, 4)
	// The captured Hello does no better.
	replay = dial(t, srv, peerOptions{connect: good.connect, noHello: true})
	msg := wire.AppendHello(nil, 1, wire.Hello{ReplySize: peerSize, Name: []byte("test")})
	wire.SignHello(msg, []byte("a shared secret!"), good.connect, good.accept)
	replay.send(msg)
	replay.dead()
	ended(t, srv, base.CauseAuth, 5)
	if err := good.ping(); err != nil {
		t.Errorf("the honest client: %v", err)
	}
}

func TestPublicServerRefusesSecret(t *testing.T) {
	srv := startServer(t, nil)
	_, err := tryDial(t, srv, peerOptions{secret: []byte("a shared secret!")})
	wantStatus(t, err, wire.StatusAuth)
}

// patchIn changes one byte of a message.
func patchIn(msg []byte, at int, b byte) []byte {
	msg[at] = b
	return msg
}

func TestConnectPrivateData(t *testing.T) {
	srv := startServer(t, nil)
	later := wire.AppendConnect(nil, nil, wire.Connect{Min: wire.VersionMax + 1, Max: wire.VersionMax + 3})
	// Version 2's was 40 bytes long.
	old := append([]byte("RKV1\x02\x02\x00\x00"), make([]byte, 32)...)
	good := wire.AppendConnect(nil, nil, wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax})
	must := wire.AppendConnect(nil, nil, wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Features: 0x8000})
	for _, c := range []struct {
		name    string
		private []byte
		want    wire.Status
		cause   base.Cause
	}{
		{"versions of the future", later, wire.StatusVersion, base.CauseVersion},
		{"the version before this", old, wire.StatusVersion, base.CauseVersion},
		{"a feature that must be understood", must, wire.StatusProtocol, base.CauseVersion},
		{"another program", []byte("GET / HTTP/1.1\r\n\r\n"), wire.StatusProtocol, base.CauseMagic},
		{"too short", []byte("RKV1"), wire.StatusProtocol, base.CauseMagic},
		{"something behind it", append(append([]byte{}, good...), 1), wire.StatusProtocol, base.CauseMagic},
	} {
		before := srv.main.Counters.Ends[c.cause].Load()
		_, err := tryDial(t, srv, peerOptions{connect: c.private})
		if !errors.Is(err, c.want.Err()) || !errors.Is(err, rdma.ErrRejected) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		ended(t, srv, c.cause, before+1)
	}
}

// TestReadBeforeHello: a connected client that has not proved the secret reads
// nothing, even with a true address and rkey.
func TestReadBeforeHello(t *testing.T) {
	srv := startServer(t, nil)
	known := dial(t, srv, peerOptions{})
	_, regions := known.regions()
	p := dial(t, srv, peerOptions{noHello: true})
	if b, err := p.read(regions[0].Addr, regions[0].RKey, 4096); err == nil {
		t.Fatalf("READ succeeded: %x", b[:16])
	}
	p.dead()
	// After Hello the same READ succeeds, and a WRITE still does not.
	b, err := known.read(regions[0].Addr, regions[0].RKey, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.ParseRegionHeader(b); err != nil {
		t.Fatal(err)
	}
	writer := dial(t, srv, peerOptions{})
	writer.qp.PostSend([]rdma.SendWR{{
		ID: 3, Op: rdma.OpRDMAWrite, Flags: rdma.SendSignaled,
		SGL:    []rdma.SGE{{MR: writer.mr, Len: 8}},
		Remote: rdma.RemoteAddr{Addr: regions[0].Addr, RKey: regions[0].RKey},
	}})
	writer.dead()
	for _, bad := range []struct {
		name       string
		addr, rkey uint64
	}{
		{"beyond the region", regions[0].Addr + regions[0].Length - 2048, uint64(regions[0].RKey)},
		{"before the region", regions[0].Addr - 4096, uint64(regions[0].RKey)},
		{"a guessed rkey", regions[0].Addr, uint64(regions[0].RKey) + 1},
	} {
		p := dial(t, srv, peerOptions{})
		if _, err := p.read(bad.addr, uint32(bad.rkey), 4096); err == nil {
			t.Errorf("READ %s succeeded", bad.name)
		}
		p.dead()
	}
	if err := known.ping(); err != nil {
		t.Errorf("the honest client: %v", err)
	}
}

// TestHostileMessages sends what no client would. Each ends its own session,
// with a Goodbye and a counted cause, and harms nobody else.
func TestHostileMessages(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		honest := dial(t, srv, peerOptions{})
		good := wire.AppendPut(nil, 9, wire.Put{Key: []byte("k"), Value: []byte("v")})
		patch := func(at int, b byte) []byte {
			m := append([]byte(nil), good...)
			m[at] = b
			return m
		}
		for _, c := range []struct {
			name  string
			msg   []byte
			cause base.Cause
		}{
			{"nothing", nil, base.CauseHeader},
			{"one byte", []byte{1}, base.CauseHeader},
			{"another version", patch(0, 1), base.CauseHeader},
			{"a version to come", patch(0, wire.VersionMax+1), base.CauseHeader},
			{"type 0", patch(1, 0), base.CauseHeader},
			{"a reply", patch(1, 0x83), base.CauseHeader},
			{"a Goodbye", wire.AppendGoodbye(nil, wire.StatusClosing, ""), base.CauseHeader},
			{"unknown flags", patch(4, 0xfe), base.CauseHeader},
			{"a status", patch(2, 1), base.CauseHeader},
			{"a wrong length", patch(16, 0xff), base.CauseHeader},
			{"a key longer than the message", patch(wire.HeaderSize, 0xff), base.CauseBody},
			{"a value of 4 GiB", patch(wire.HeaderSize+7, 0xff), base.CauseBody},
			{"a second Hello", wire.AppendHello(nil, 9, wire.Hello{ReplySize: 1 << 16}), base.CauseOrder},
			{"credits that it does not have", wire.AppendPing(nil, 9, wire.Ping{Return: 1000}), base.CauseCredits},
			{"a value that wraps around", wire.AppendPutLarge(nil, 9, wire.PutLarge{Key: []byte("k"), ValueLen: 100, Addr: 1<<64 - 50}), base.CauseBody},
			{"an unknown condition", patch(wire.HeaderSize+22, 9), base.CauseBody},
			{"a name without a number", patch(wire.HeaderSize+20, 1), base.CauseBody},
			{"a delete with a time to live", wire.AppendDelete(nil, 9, wire.Delete{Key: []byte("k"), Terms: wire.Terms{TTLMicros: 1}}), base.CauseBody},
			{"an unknown update", wire.AppendUpdate(nil, 9, wire.Update{Op: 7, Key: []byte("k")}), base.CauseBody},
			{"a batch of more parts than it has", wire.AppendBatch(nil, 9, wire.RequestID{}, 2, wire.AppendBatchPart(nil, wire.BatchPart{Key: []byte("k")})), base.CauseBody},
			{"a batch of fewer", wire.AppendBatch(nil, 9, wire.RequestID{}, 0, wire.AppendBatchPart(nil, wire.BatchPart{Key: []byte("k")})), base.CauseBody},
			{"a watch with a prefix cut off", patchIn(wire.AppendWatch(nil, 9, wire.Watch{}), wire.HeaderSize+24, 5), base.CauseBody},
			{"touches that are not there", patchIn(wire.AppendPing(nil, 9, wire.Ping{}), wire.HeaderSize+10, 5), base.CauseBody},
			{"too many damages", patchIn(wire.AppendReport(nil, 9, nil, make([]wire.Damage, wire.MaxDamages)), wire.HeaderSize+2, wire.MaxDamages+1), base.CauseBody},
		} {
			before := srv.main.Counters.Ends[c.cause].Load()
			p := dial(t, srv, peerOptions{})
			p.send(c.msg)
			if bye := p.goodbye(); !errors.Is(bye, wire.StatusProtocol.Err()) {
				t.Errorf("%s: Goodbye says %v", c.name, bye)
			}
			p.dead()
			ended(t, srv, c.cause, before+1)
			if err := honest.put(c.name, "still served"); err != nil {
				t.Fatalf("%s: the honest client: %v", c.name, err)
			}
		}
		for name, msg := range map[string][]byte{
			"a request before Hello": good,
			"a Ping before Hello":    wire.AppendPing(nil, 1, wire.Ping{}),
		} {
			before := srv.main.Counters.Ends[base.CauseOrder].Load()
			p := dial(t, srv, peerOptions{noHello: true})
			p.send(msg)
			p.dead()
			ended(t, srv, base.CauseOrder, before+1)
			_ = name
		}
	})
}

// TestBodiesOfEveryType cuts the body of every request: each is refused by
// ending the session, none by a panic or by a reply to half a request.
func TestBodiesOfEveryType(t *testing.T) {
	srv := startServer(t, nil)
	key := []byte("k")
	for name, msg := range map[string][]byte{
		"put":       wire.AppendPut(nil, 9, wire.Put{Key: key, Value: key}),
		"put large": wire.AppendPutLarge(nil, 9, wire.PutLarge{Key: key}),
		"delete":    wire.AppendDelete(nil, 9, wire.Delete{Key: key}),
		"get":       wire.AppendGet(nil, 9, wire.Get{Key: key}),
		"release":   wire.AppendRelease(nil, 9, wire.Release{}),
		"exists":    wire.AppendExists(nil, 9, wire.Key{Key: key}),
		"scan":      wire.AppendScan(nil, 9, wire.Scan{Prefix: key}),
		"document":  documentOf(wire.DocumentStats, "")(9),
		"view":      wire.AppendViewRequest(nil, 9, wire.ViewRequest{}),
		"ping":      wire.AppendPing(nil, 9, wire.Ping{}),
	} {
		before := srv.main.Counters.Ends[base.CauseBody].Load()
		msg = msg[:len(msg)-1]
		msg[16]-- // the header agrees with the shorter message
		p := dial(t, srv, peerOptions{})
		p.send(msg)
		if bye := p.goodbye(); !errors.Is(bye, wire.StatusProtocol.Err()) {
			t.Errorf("%s: Goodbye says %v", name, bye)
		}
		p.dead()
		ended(t, srv, base.CauseBody, before+1)
	}
}

// TestCreditOverrun: more requests than credits end the session, and only it.
func TestCreditOverrun(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		honest := dial(t, srv, peerOptions{})
		srv.BlockHandlers() // so that no credit comes back
		p := dialBlocked(t, srv)
		_ = p
		srv.UnblockHandlers()
		if err := honest.ping(); err != nil {
			t.Errorf("the honest client: %v", err)
		}
	})
}

// dialBlocked opens a session while handlers are blocked: Hello waits, and so
// the second message is one without a credit.
func dialBlocked(t *testing.T, srv *Server) *peer {
	before := srv.main.Counters.Ends[base.CauseCredits].Load()
	p := dial(t, srv, peerOptions{noHello: true})
	msg := wire.AppendHello(nil, 1, wire.Hello{ReplySize: peerSize})
	wire.SignHello(msg, nil, p.connect, p.accept)
	p.send(msg)
	p.send(wire.AppendPut(nil, 2, wire.Put{Key: []byte("k")}))
	p.dead()
	// With a queue of its own the session had one receive, and the fabric
	// itself refused the second message; shared, the server counted.
	eventually(t, "the session ended", func() bool {
		return srv.main.Counters.Ends[base.CauseCredits].Load()+srv.main.Counters.Ends[base.CauseFabric].Load() > before
	})
	return p
}

// TestOverrunOpenSession sends one request more than it has credits.
func TestOverrunOpenSession(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		honest := dial(t, srv, peerOptions{})
		p := dial(t, srv, peerOptions{})
		srv.BlockHandlers()
		defer srv.UnblockHandlers()
		for i := range p.credits + 1 {
			p.send(wire.AppendPut(nil, uint64(100+i), wire.Put{Key: []byte("k")}))
		}
		p.dead()
		eventually(t, "the session ended", func() bool {
			return srv.main.Counters.Ends[base.CauseCredits].Load()+srv.main.Counters.Ends[base.CauseFabric].Load() == 1
		})
		if err := honest.ping(); err != nil {
			t.Errorf("the honest client: %v", err)
		}
		// A second Ping before the reply to the first is one too many as well;
		// the poller answers Pings at once, so two in one batch are fine.
		if err := honest.ping(); err != nil {
			t.Errorf("the honest client: %v", err)
		}
	})
}

// TestCreditsGrowAndReturn: a client that says it had to wait gets more, up to
// the bound; one that gives credits back keeps one.
func TestCreditsGrowAndReturn(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) { change(c); c.Credits = 32; c.InitialCredits = 2 })
		p := dial(t, srv, peerOptions{})
		if p.credits != 2 {
			t.Fatalf("%d credits at first", p.credits)
		}
		spend := func(want bool) {
			_, err := p.call(func(id uint64) []byte {
				msg := wire.AppendPut(nil, id, wire.Put{Key: []byte("k"), Value: []byte("v")})
				if want {
					wire.SetFlags(msg, wire.FlagWantCredits)
				}
				return msg
			})
			if err != nil {
				t.Fatal(err)
			}
			p.credits--
		}
		for range 10 {
			spend(true)
		}
		if p.credits != 32 {
			t.Fatalf("%d credits after asking for more", p.credits)
		}
		spend(false)
		if p.credits != 32 {
			t.Fatalf("%d credits after one more request", p.credits)
		}
		// Returned, and given again.
		for range 2 {
			if _, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{Return: 31}) }); err != nil {
				t.Fatal(err)
			}
			p.credits -= 31
			for range 10 {
				spend(true)
			}
			if p.credits != 32 {
				t.Fatalf("%d credits after asking again", p.credits)
			}
		}
		if got := srv.main.Sessions.Credits(); got != p.credits {
			t.Errorf("the server thinks of %d credits, the client of %d", got, p.credits)
		}
	})
}

// TestHandlersBlocked: with every handler stopped, READs and Pings go on.
func TestHandlersBlocked(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Beat = 5 * time.Millisecond })
	p := dial(t, srv, peerOptions{})
	_, regions := p.regions()
	srv.BlockHandlers()
	id := p.id()
	p.send(wire.AppendPut(nil, id, wire.Put{Key: []byte("k"), Value: []byte("v")}))
	if err := p.ping(); err != nil {
		t.Fatal(err)
	}
	beat := func() uint64 {
		b, err := p.read(regions[0].Addr+layout.BeatOffset, regions[0].RKey, layout.BeatSize)
		if err != nil {
			t.Fatal(err)
		}
		beat, err := layout.ParseBeat(b, srv.main.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		return beat.Counter
	}
	first := beat()
	eventually(t, "the beat goes on", func() bool { return beat() > first+2 })
	if st := srv.main.Store.Stats(); st.Published != 0 || len(p.replies) != 0 {
		t.Fatal("a handler ran")
	}
	eventually(t, "the put waits at the gate", func() bool { _, n := srv.main.Sessions.Gate.Waiting(); return n == 1 })
	// A session that ends meanwhile does not wait for the gate.
	gone := dial(t, srv, peerOptions{noHello: true})
	gone.send(wire.AppendHello(nil, 1, wire.Hello{}))
	eventually(t, "its Hello waits too", func() bool { _, n := srv.main.Sessions.Gate.Waiting(); return n == 2 })
	gone.qp.Disconnect()
	ended(t, srv, base.CausePeer, 1)
	srv.UnblockHandlers()
	if h, _, err := p.await(id); err != nil || h.Status != wire.StatusOK {
		t.Fatalf("%v, %v", h, err)
	}
}

func TestSetupDeadline(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.SetupTimeout = 50 * time.Millisecond })
	p := dial(t, srv, peerOptions{noHello: true})
	p.dead()
	ended(t, srv, base.CauseSetup, 1)
}

func TestIdleSessionEnds(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Keepalive = 20 * time.Millisecond; c.Idle = 100 * time.Millisecond })
	p := dial(t, srv, peerOptions{})
	if bye := p.goodbye(); !errors.Is(bye, wire.StatusIdle.Err()) {
		t.Errorf("Goodbye says %v", bye)
	}
	p.dead()
	ended(t, srv, base.CauseIdle, 1)
}

func TestSessionCaps(t *testing.T) {
	srv := startServer(t, func(c *Config) {
		c.MaxSessions, c.MaxUnauthenticated, c.MaxSetupsPerHost = 4, 8, 2
		c.setupGrace = time.Hour
	})
	a := dial(t, srv, peerOptions{noHello: true})
	b := dial(t, srv, peerOptions{noHello: true})
	_, err := tryDial(t, srv, peerOptions{})
	wantStatus(t, err, wire.StatusBusy) // two of this host are being set up
	for _, p := range []*peer{a, b} {
		if err := p.hello(peerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, srv, peerOptions{})
	dial(t, srv, peerOptions{})
	_, err = tryDial(t, srv, peerOptions{})
	wantStatus(t, err, wire.StatusBusy) // four are open
	c.qp.Disconnect()
	eventually(t, "the place is free again", func() bool {
		_, opens := srv.registry.Counts()
		return opens == 3
	})
	dial(t, srv, peerOptions{})
	ended(t, srv, base.CauseBusy, 2)
}

// TestPeerGoneInRendezvous: a client that dies while its value is being READ
// takes nothing with it: staging memory comes back, nothing was written.
func TestPeerGoneInRendezvous(t *testing.T) {
	srv := startServer(t, nil)
	for range 5 {
		p := dial(t, srv, peerOptions{sink: 4 << 20})
		value := p.sink()[:4<<20]
		p.send(wire.AppendPutLarge(nil, p.id(), wire.PutLarge{
			Key: []byte("k"), ValueLen: uint64(len(value)), Checksum: xxh3.Hash(value) + 1,
			RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
		}))
		p.qp.Disconnect()
		p.dead()
	}
	// One that names memory it has not registered is cut off.
	p := dial(t, srv, peerOptions{})
	p.send(wire.AppendPutLarge(nil, p.id(), wire.PutLarge{Key: []byte("k"), ValueLen: 1 << 20, RKey: p.mr.RKey() + 1, Addr: 4096}))
	p.dead()
	eventually(t, "all sessions are gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
	if used, waiting := srv.main.Staging.InUse(); used != 0 || waiting != 0 {
		t.Errorf("%d bytes of staging memory in use, %d wait", used, waiting)
	}
	if st := srv.main.Store.Stats(); st.Published != 0 {
		t.Errorf("%d writes published", st.Published)
	}
}

// relay stands between one connection and the server, and returns the address to
// connect to. Each function is called with what one end has sent; false: it does not
// go on to the other.
func relay(t *testing.T, srv *Server, up, down func(n int) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", srv.Addrs()[0].String())
		if err != nil {
			return
		}
		pass := func(from, to net.Conn, allow func(n int) bool) {
			defer to.Close()
			for buf := make([]byte, 64<<10); ; {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				if allow(n) {
					if _, err := to.Write(buf[:n]); err != nil {
						return
					}
				}
			}
		}
		wg.Go(func() { pass(server, client, down) })
		pass(client, server, up)
	})
	return l.Addr().String()
}

func anything(int) bool { return true }

// slowLink lets what comes from the client through at about 3 MB/s.
func slowLink(t *testing.T, srv *Server) string {
	t.Helper()
	return relay(t, srv, func(n int) bool {
		time.Sleep(time.Duration(n) * time.Second / (3 << 20))
		return true
	}, anything)
}

// TestTrickledValue: a client that serves READs, but hardly, is cut off:
// others wait for the staging memory that it holds.
func TestTrickledValue(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.SendTimeout = 400 * time.Millisecond })
	p := dial(t, srv, peerOptions{sink: 8 << 20, via: slowLink(t, srv)})
	value := p.sink()[:8<<20] // 2.7 s on this link, READ in pieces of 80 ms
	if err := p.putLarge([]byte("k"), len(value), xxh3.Hash(value)); err == nil {
		t.Error("the put went through")
	}
	p.dead()
	ended(t, srv, base.CauseSlow, 1)
	if used, waiting := srv.main.Staging.InUse(); used != 0 || waiting != 0 {
		t.Errorf("%d bytes of staging memory in use, %d wait", used, waiting)
	}
}

// TestShutdownAnswersWhatIsUnderWay: puts that were accepted are answered, and
// every client is told goodbye.
func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, func(c *Config) { change(c); c.Linger = 20 * time.Second })
		idle := dial(t, srv, peerOptions{})
		p := dial(t, srv, peerOptions{})
		var ids []uint64
		for i := range p.credits {
			id := p.id()
			ids = append(ids, id)
			p.send(wire.AppendPut(nil, id, wire.Put{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")}))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- srv.Shutdown(ctx) }()
		if bye := idle.goodbye(); !errors.Is(bye, wire.StatusClosing.Err()) {
			t.Errorf("idle client: %v", bye)
		}
		for _, id := range ids {
			h, _, err := p.await(id)
			if err != nil || h.Status != wire.StatusOK && h.Status != wire.StatusClosing {
				t.Errorf("put %d: %v, %v", id, h, err)
			}
		}
		p.goodbye()
		p.qp.Disconnect() // as a client does that has its answers
		idle.qp.Disconnect()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if srv.Ready() {
			t.Error("ready after Shutdown")
		}
	})
}

// TestManyClients puts and gets from many sessions at once, pipelined.
func TestManyClients(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		var wg sync.WaitGroup
		for c := range 8 {
			p := dial(t, srv, peerOptions{})
			wg.Go(func() {
				for round := range 20 {
					var ids []uint64
					for i := range p.wel.Shards {
						id := p.id()
						ids = append(ids, id)
						p.send(wire.AppendPut(nil, id, wire.Put{
							Key: fmt.Appendf(nil, "c%d/%d", c, i), Value: []byte(strings.Repeat("x", round*10)),
						}))
					}
					for _, id := range ids {
						if h, _, err := p.await(id); err != nil || h.Status != wire.StatusOK {
							t.Errorf("client %d: %v, %v", c, h, err)
							return
						}
					}
					r, err := p.get(fmt.Sprintf("c%d/1", c), 1<<16)
					if err != nil || len(r.Value) != round*10 {
						t.Errorf("client %d: %d bytes, %v", c, len(r.Value), err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestStrayTCP: what is no iWARP at all on the data port harms nobody.
func TestStrayTCP(t *testing.T) {
	srv := startServer(t, nil)
	honest := dial(t, srv, peerOptions{})
	for _, text := range []string{"", "GET / HTTP/1.0\r\n\r\n", "MPA ID Req Frame", strings.Repeat("\xff", 4096)} {
		c, err := net.Dial("tcp", srv.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(text))
		c.Close()
	}
	if err := honest.put("k", "v"); err != nil {
		t.Errorf("the honest client: %v", err)
	}
}

// TestFloodOfSilentConnections: connections that never say Hello cost places
// for a while; clients that are in are served all the time, new ones after it.
func TestFloodOfSilentConnections(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.MaxUnauthenticated = 16; c.SetupTimeout = 300 * time.Millisecond })
	honest := dial(t, srv, peerOptions{})
	refused := 0
	for range 40 {
		if _, err := tryDial(t, srv, peerOptions{noHello: true, receives: 1}); err != nil {
			wantStatus(t, err, wire.StatusBusy)
			refused++
		}
		if err := honest.ping(); err != nil {
			t.Fatalf("the honest client: %v", err)
		}
	}
	eventually(t, "the silent ones are gone", func() bool { return len(srv.main.Sessions.List()) == 1 })
	dial(t, srv, peerOptions{})
	if got := srv.main.Counters.Ends[base.CauseSetup].Load() + srv.main.Counters.Ends[base.CauseBusy].Load() + srv.main.Counters.Ends[base.CauseCrowded].Load(); got != 40 || int(srv.main.Counters.Ends[base.CauseBusy].Load()) != refused {
		t.Errorf("%d ended or refused, %d of them refused here", got, refused)
	}
}
