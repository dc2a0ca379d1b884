// Package client is the Go client of rdmakv.
//
// A get is a one-sided RDMA READ: this package computes where the key's slot
// must be, READs the server's index and the item from its registered memory,
// and decides by itself whether what it has read is the value. The server's
// CPU takes no part. A put is a message: the server makes it durable, then
// visible, then answers.
//
//	c, err := client.Dial(ctx, client.Config{Servers: []string{"kv1:7400"}, Fabric: iwarp.New(iwarp.Options{})})
//	…
//	err = c.Put(ctx, []byte("name"), []byte("value"))
//	value, err := c.Get(ctx, []byte("name"))
//
// # What to know
//
//   - One Client is meant to be shared by all goroutines of a program.
//   - Every call obeys its context; one without a deadline ends after
//     Config.Timeout. Keys and values are copied: they are the caller's again
//     when the call returns, on every path.
//   - Errors are *Error and wrap the sentinels of this package (ErrNotFound …).
//   - A get sees every put that was acknowledged before it began, its own and
//     others', and never goes back in time.
//   - A write (put, delete, increment, touch, batch) whose reply was lost is sent
//     again over reconnects and restarts of the server, and takes effect once. It
//     fails with ErrOutcomeUnknown if its time is over before its outcome is
//     known, and with nothing else if it may have taken effect.
//   - Whether a key has expired is decided by the server's time alone.
//   - The connection is made again by itself when it is lost.
//   - Of several fabrics the first that reaches the server is used; Server says
//     which one, and why no better one.
//
// The parts, one idea a file: write, requestid and staged (writes that take effect
// once), servertime (expiry), events (watches), touches and damage (what the
// server is told of), transport (an opened device and the memory
// registered on it), dial (which fabric, which device), session (one connection
// to one incarnation), requests (SENDs with credits), reader and batch
// (one-sided gets), lease and reclaim (when a READ may be believed), loccache,
// buffers, large, reconnect, race and improve (how it comes back, and to what),
// watch and overdue.
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

// A Client is a connection to a store that keeps itself alive. All methods are
// safe for concurrent use. Close it to give its memory and connection back.
type Client struct {
	cfg     Config
	log     *slog.Logger
	id      [16]byte // random; outlives connections
	name    []byte   // for the server's log
	memKind memory.Kind

	transports transports

	now    func() int64 // the lease clock: bootNanos
	wall   func() int64 // microseconds since 1970; tests show that nothing goes by it
	start  time.Time
	coarse atomic.Int64 // nanoseconds since start, at the last tick of watch
	tick   atomic.Int64 // nanoseconds between ticks

	n       counters
	ids     *requestIDs
	current atomic.Pointer[session]
	conn    connector
	wake    chan struct{} // cap 1: the keeper has something to do
	done    context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// Dial connects to the first of the servers that answers, by the first fabric
// that reaches it. It fails with ErrConfig, ErrUnavailable, ErrAuth, ErrVersion,
// ErrProtocol or ErrNoRDMA; the fabric's own error is wrapped if a device cannot
// be opened or nobody answers.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &Error{Op: "dial", Err: err}
	}
	cfg = cfg.withDefaults()
	c := &Client{
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
	rand.Read(c.id[:])
	c.ids = newRequestIDs(cfg.MaxInflight, cfg.MaxWaiting)
	c.conn.c = c
	c.conn.called = make(chan struct{}, 1)
	c.tick.Store(int64(min(maxTick, cfg.Timeout/8)))
	c.done, c.cancel = context.WithCancel(context.Background())
	s, err := c.conn.dialAny(ctx)
	if err != nil {
		c.release()
		return nil, c.fail("dial", nil, "", err)
	}
	c.conn.server = s.server
	c.coarse.Store(int64(time.Since(c.start))) // calls may come before the first tick
	c.install(s)
	c.wg.Go(c.watch)
	c.wg.Go(c.keep)
	return c, nil
}

// clientName is what a server's log shows of this program.
func clientName() string {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s@%s/%d", filepath.Base(os.Args[0]), host, os.Getpid())
	return name[:min(len(name), 64)]
}

// Close ends the session and gives everything back. Calls under way fail with
// ErrClosed; puts that were sent, with ErrOutcomeUnknown. Closing twice is
// harmless.
func (c *Client) Close() error {
	if !c.conn.close() {
		return nil
	}
	c.cancel()
	c.wg.Wait()
	return c.release()
}

// release frees what Dial took.
func (c *Client) release() error {
	c.cancel()
	if err := c.transports.close(); err != nil {
		return &Error{Op: "close", Err: err}
	}
	return nil
}

// Server describes the session in force; the zero value if there is none.
func (c *Client) Server() ServerInfo {
	s := c.current.Load()
	if s == nil || s.isDown() {
		return ServerInfo{}
	}
	return s.info()
}

// Counters returns what this client has done since Dial, without asking the
// server.
func (c *Client) Counters() Counters {
	n := c.n.snapshot()
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
