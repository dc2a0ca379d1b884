// Package peer is one server as a client sees it, over all connections to it: how it is
// reached and by which fabric (dial.go, race.go, firstdial.go), how the connection comes
// back (reconnect.go) and moves to a better fabric (improve.go), what keeps it (keeper.go),
// the ids of the writes that are under way there (ids.go), and what is different for calls that may go to
// another replica instead (replica.go).
//
// A call takes a session (Peer.Session), uses it, and takes another one if it was lost
// (Peer.Settle, base.Again). Ask is that loop for a request that changes nothing.
//
// Lock order: the connector's mutex before those of sessions and of device.Set. Methods of
// Directory may be called with the connector's mutex held, so they take no lock of a peer.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma/boottime"
)

// A Peer is one server as a Client sees it: a session that is made again when it
// is lost, the devices and the registered memory that it uses (in a PD of this
// server alone), the ids of its writes, its counters. Peers share nothing, so
// that a server which is gone, slow or hostile disturbs no call to another one.
type Peer struct {
	cfg     *base.Config
	log     *slog.Logger
	World   world.World     // the clock and the memory it is given, if not the machine's
	options session.Options // of its sessions

	// Of a node of a cluster. They are set before the peer is used.
	dir  Directory // nil: this server is all there is
	Node string    // which node must answer; "": any

	Devices *device.Set

	awake atomic.Bool // watch and keep are at work
	Clock base.Clock  // watch ticks it

	n       base.Counts
	waits   session.Waits
	IDs     *IDs
	Replica Replica
	past    atomic.Bool // Part
	current atomic.Pointer[session.Session]
	conn    connector
	// One call at a time reads the pages of an answer of which the server keeps
	// one for each session.
	AdminTurn, StatsTurn *turnstile.Turnstile

	wake   chan struct{} // cap 1: the keeper has something to do
	done   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// A Directory is what a peer knows of the cluster that its node is of. Its methods
// wait for nothing, and take no lock of a peer.
type Directory interface {
	// Addresses returns where the node may listen, host:port, best first.
	Addresses(node string) []string
	// Learn takes in what a node with so many shards has said of its cluster, or
	// refuses it: then the node is of another cluster, or not the one it should be.
	Learn(n *session.News, shards int) error
	// Met notes that an address has led to a node.
	Met(node, addr string)
	// Unreachable notes that the node was not reached where it was looked for.
	Unreachable(node string)
	// Owns reports whether the node alone has the shard of key, by the map in force.
	Owns(node string, key []byte) bool
	// Names are those of all writes to the group of a key, if by the map in force shards have replicas; else nil, whatever
	// the key.
	Names(key []byte) *IDs
}

// servers is where the peer's server may listen, host:port.
func (p *Peer) servers() []string {
	if p.dir == nil || p.Node == "" {
		return p.cfg.Servers
	}
	return p.dir.Addresses(p.Node)
}

// New makes a peer that has no session yet. cfg is valid and complete; node says which
// node must answer, "" that any may; dir is nil if the server is all there is. By client the
// server tells names of writes from those of others (ids.go).
func New(cfg *base.Config, w world.World, node string, dir Directory, client [16]byte) *Peer {
	c := &Peer{
		dir:   dir,
		Node:  node,
		cfg:   cfg,
		log:   cfg.Logger,
		World: w,
		wake:  make(chan struct{}, 1),
	}
	c.Devices = device.NewSet(cfg, w.Heap)
	c.done, c.cancel = context.WithCancel(context.Background())
	c.Clock.Start(LeaseClock(w), min(session.MaxTick, cfg.Timeout/8), c.done.Done())
	c.options = session.Options{
		Config: cfg, Clock: &c.Clock, Counts: &c.n, Waits: &c.waits, Devices: c.Devices, Owner: c, Log: cfg.Logger,
		Name: []byte(clientName()), World: w, ClientID: client,
	}
	c.IDs = NewIDs(0, cfg.MaxInflight, cfg.MaxWaiting)
	c.AdminTurn, c.StatsTurn = turnstile.New(1, cfg.MaxWaiting, base.ErrOverloaded), turnstile.New(1, cfg.MaxWaiting, base.ErrOverloaded)
	c.conn.c, c.Replica.c = c, c
	c.conn.called = make(chan struct{}, 1)
	return c
}

// LeaseClock is the lease clock of all peers of a client.
func LeaseClock(w world.World) func() int64 {
	if w.Now != nil {
		return w.Now
	}
	return boottime.Nanos
}

// Serve begins with the session that dial has made.
func (p *Peer) Serve(s *session.Session) {
	p.Start() // calls may come before the first tick
	p.install(s)
}

// IsNode makes the peer that of the node which has answered dial. It is called before
// serve.
func (p *Peer) IsNode(node string) { p.Node = node }

// IsAlone makes the peer that of a server which is all there is. It is called before
// serve.
func (p *Peer) IsAlone(s *session.Session) { p.dir, p.conn.server = nil, s.ServerID }

// DialOnce makes one attempt to reach the server. The session is the caller's.
func (p *Peer) DialOnce(ctx context.Context) (*session.Session, error) { return p.conn.dialAny(ctx) }

// Start starts the goroutines of the peer, before the first call. Safe for concurrent use.
func (p *Peer) Start() {
	if !p.awake.Load() {
		p.start()
	}
}

func (p *Peer) start() {
	k := &p.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || p.awake.Load() {
		return
	}
	p.Clock.Tick(time.Now())
	p.wg.Go(p.watch)
	p.wg.Go(p.keep)
	p.awake.Store(true)
}

// clientName is what a server's log shows of this program.
func clientName() string {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s@%s/%d", filepath.Base(os.Args[0]), host, os.Getpid())
	return name[:min(len(name), 64)]
}

// Current is the session in force; nil if there is none. It may be about to end.
func (p *Peer) Current() *session.Session { return p.current.Load() }

// Counts is where calls at this server are counted.
func (p *Peer) Counts() *base.Counts { return &p.n }

// Config is what the client was made with.
func (p *Peer) Config() *base.Config { return p.cfg }

// ClientID is the client that its server knows it as.
func (p *Peer) ClientID() [16]byte { return p.options.ClientID }

// Names are those of the writes of a key that are made at the server.
func (p *Peer) Names(key []byte) *IDs {
	if p.dir != nil && !p.past.Load() {
		if ids := p.dir.Names(key); ids != nil {
			return ids
		}
	}
	return p.IDs
}

// Led reports whether the node has replicas of shards, which another node may lead. Then its
// memory alone answers nothing, and a call makes one try here before it goes elsewhere.
func (p *Peer) Led() bool { return p.dir != nil && !p.past.Load() && p.dir.Names(nil) != nil }

// Part has the peer be one of a time without replicas for ever, whatever map comes in force: its server knows the writes that are made here by the peer's own names, and each group would take the first
// ones under names of its own for others that it knows. It is called before such a map is in force.
func Part(p *Peer) { p.past.Store(true) }

// GiveUp ends a peer that was never started.
func (p *Peer) GiveUp() { p.cancel() }

// LostFor is for how long there has been no session; 0 if there is one.
func (p *Peer) LostFor() time.Duration {
	k := &p.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost.IsZero() {
		return 0
	}
	return time.Since(k.lost)
}

// Close ends the session and gives everything back; a second call does nothing.
func (p *Peer) Close() error {
	if !p.conn.close() {
		return nil
	}
	p.cancel()
	p.wg.Wait()
	return p.Release()
}

// Release frees what the peer took.
func (p *Peer) Release() error {
	p.cancel()
	if err := p.Devices.Close(); err != nil {
		return &base.Error{Op: "close", Err: err}
	}
	return nil
}

// Info describes the session in force; the zero value if there is none.
func (p *Peer) Info() base.ServerInfo {
	s := p.current.Load()
	if s == nil || s.IsDown() {
		return base.ServerInfo{}
	}
	return s.Info()
}

// Counters is what was done at this server.
func (p *Peer) Counters() base.Counters {
	n := p.n.Snapshot()
	n.Waits = p.waits.Counters()
	n.BufferBytes, n.StagingBytes, n.QuarantinedBytes = p.Devices.Usage()
	return n
}

// Begin starts the limit of one call.
func (p *Peer) Begin(ctx context.Context) base.Limit { return p.Clock.Limit(ctx, p.cfg.Timeout) }

// Fail makes the *Error that a call returns. A context's end becomes
// ErrTimeout if it was a deadline and stays itself if it was a cancellation.
func (p *Peer) Fail(op string, key []byte, server string, err error) error {
	if e := (*base.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if err = p.Replica.Fail(op, key, server, err); errors.Is(err, base.ErrTimeout) {
		p.n.Timeouts.Add(1)
	}
	return err
}

// State is how things stand with the server now.
func (p *Peer) State() base.NodeState {
	s := p.current.Load()
	if s == nil || s.IsDown() {
		return base.NodeState{}
	}
	return s.State()
}

// Latencies are the times of the calls that were made at the server.
func (p *Peer) Latencies() base.Latencies {
	return base.Latencies{Gets: p.n.GetTimes.Snapshot(), Writes: p.n.WriteTimes.Snapshot()}
}

// AskOnce does f, which may change something, once: it is not sent again after a
// session was lost, but it waits for one.
func (p *Peer) AskOnce(l *base.Limit, op string, f func(*session.Session) error) error {
	s, err := p.Session(l)
	if err != nil {
		return p.Fail(op, nil, "", err)
	}
	return p.Fail(op, nil, s.Addr, base.Plain(f(s)))
}

// Ask does f, which changes nothing, over as many sessions as it takes.
func (p *Peer) Ask(l *base.Limit, op string, key []byte, f func(*session.Session) error) error {
	server := ""
	for {
		if err := l.Over(); err != nil {
			return p.Fail(op, key, server, err)
		}
		s, err := p.Session(l)
		if err != nil {
			return p.Fail(op, key, server, err)
		}
		server = s.Addr
		if err = f(s); err == nil || !base.Again(err) {
			return p.Fail(op, key, server, base.Plain(err))
		}
		p.n.RetryLost.Add(1)
		p.Settle(l, s)
	}
}

// Settle waits until a session that has just lost a call is out of use, so that
// the caller does not meet it again.
func (p *Peer) Settle(l *base.Limit, s *session.Session) {
	if s.IsDown() || p.current.Load() != s {
		return
	}
	s.AwaitEnd(l)
}

// Ping asks the server for an answer, and returns how long it took.
func (p *Peer) Ping(ctx context.Context) (took time.Duration, err error) {
	l := p.Begin(ctx)
	err = p.Ask(&l, "ping", nil, func(s *session.Session) (err error) {
		took, err = s.Ping(&l)
		return err
	})
	return took, err
}
