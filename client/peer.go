package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A peer is one server as a Client sees it: a session that is made again when it
// is lost, the devices and the registered memory that it uses (in a PD of this
// server alone), the ids of its writes, its counters. Peers share nothing, so
// that a server which is gone, slow or hostile disturbs no call to another one.
type peer struct {
	cfg     Config
	log     *slog.Logger
	id      [16]byte // random; outlives connections
	name    []byte   // for the server's log
	memKind memory.Kind

	// Of a node of a cluster. They are set before the peer is used.
	fleet   *fleet          // nil: this server is all there is
	node    string          // who must answer; "": whoever does
	servers func() []string // where it may listen, host:port

	transports transports

	now    func() int64 // the lease clock: bootNanos
	wall   func() int64 // microseconds since 1970; tests show that nothing goes by it
	awake  atomic.Bool  // watch and keep are at work
	start  time.Time
	coarse atomic.Int64 // nanoseconds since start, at the last tick of watch
	ticked atomic.Int64 // the lease clock at the last tick; reading that is a system call
	tick   atomic.Int64 // nanoseconds between ticks

	n       counters
	waits   waits
	ids     *requestIDs
	current atomic.Pointer[session]
	conn    connector
	// One call at a time reads the pages of an answer of which the server keeps
	// one for each session.
	adminTurn, statsTurn *turnstile

	wake   chan struct{} // cap 1: the keeper has something to do
	done   context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newPeer makes a peer that has no session yet. cfg is valid and complete.
func newPeer(cfg Config) *peer {
	c := &peer{
		cfg:     cfg,
		log:     cfg.Logger,
		name:    []byte(clientName()),
		memKind: memory.Mmap,
		now:     bootNanos,
		wall:    func() int64 { return time.Now().UnixMicro() },
		start:   time.Now(),
		wake:    make(chan struct{}, 1),
	}
	c.transports = transports{c: c, opening: make(chan struct{}, 1), open: make(map[transportKey]*transport)}
	if cfg.clock != nil {
		c.now = cfg.clock
	}
	if cfg.HeapMemory {
		c.memKind = memory.Heap
	}
	c.ticked.Store(c.now())
	rand.Read(c.id[:])
	c.ids = newRequestIDs(cfg.MaxInflight, cfg.MaxWaiting)
	c.servers = func() []string { return cfg.Servers }
	c.adminTurn, c.statsTurn = newTurnstile(1, cfg.MaxWaiting), newTurnstile(1, cfg.MaxWaiting)
	c.conn.c = c
	c.conn.called = make(chan struct{}, 1)
	c.tick.Store(int64(min(maxTick, cfg.Timeout/8)))
	c.done, c.cancel = context.WithCancel(context.Background())
	return c
}

// serve begins with the session that dial has made.
func (c *peer) serve(s *session) {
	c.rouse() // calls may come before the first tick
	c.install(s)
}

// rouse starts what minds a peer, before the first call. Safe for concurrent use.
func (c *peer) rouse() {
	k := &c.conn
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || c.awake.Load() {
		return
	}
	c.coarse.Store(int64(time.Since(c.start)))
	c.ticked.Store(c.now())
	c.wg.Go(c.watch)
	c.wg.Go(c.keep)
	c.awake.Store(true)
}

// clientName is what a server's log shows of this program.
func clientName() string {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s@%s/%d", filepath.Base(os.Args[0]), host, os.Getpid())
	return name[:min(len(name), 64)]
}

// close ends the session and gives everything back; a second call does nothing.
func (c *peer) close() error {
	if !c.conn.close() {
		return nil
	}
	c.cancel()
	c.wg.Wait()
	return c.release()
}

// release frees what the peer took.
func (c *peer) release() error {
	c.cancel()
	if err := c.transports.close(); err != nil {
		return &Error{Op: "close", Err: err}
	}
	return nil
}

// serverInfo describes the session in force; the zero value if there is none.
func (c *peer) serverInfo() ServerInfo {
	s := c.current.Load()
	if s == nil || s.isDown() {
		return ServerInfo{}
	}
	return s.info()
}

// counters is what was done at this server.
func (c *peer) counters() Counters {
	n := c.n.snapshot()
	n.Waits = c.waits.counters()
	n.BufferBytes, n.StagingBytes, n.QuarantinedBytes = c.transports.usage()
	return n
}

// checkKey refuses keys that no server takes.
func checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrKeyEmpty
	case len(key) > layout.MaxKeyLen:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKeyTooLarge, len(key), layout.MaxKeyLen)
	}
	return nil
}
