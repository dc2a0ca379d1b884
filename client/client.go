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
//   - In a cluster each key leads to the node that owns it, by the shard map that
//     the nodes have agreed on; any of them will do for Dial. A node that is away
//     costs the calls for its own keys alone: they fail with ErrUnavailable, those
//     with many keys with a *PartialError beside what the others have answered.
//
// The parts, one idea a file: client (what a program sees), peer (what is behind
// it for one server); for clusters fleet (the peers and the map), learn (what is
// believed, and of whom), join (a server proves to be the right node), routed,
// reroute and fanout (calls for one key, told to go elsewhere, for many), fanin
// and position (watches), nodes, clusterinfo, clusterinit; then write, requestid and staged (writes that take effect
// once), servertime (expiry), events (watches), touches and damage (what the
// server is told of), transport (an opened device and the memory
// registered on it), dial (which fabric, which device), session (one connection
// to one incarnation), firstdial (Dial waits for a server), requests (SENDs with credits), reader, direct and batch
// (one-sided gets), lease and reclaim (when a READ may be believed), loccache,
// buffers, large, reconnect, race and improve (how it comes back, and to what),
// watch and overdue.
package client

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Client is a connection to a store, to one server or to all nodes of a
// cluster, that keeps itself alive. All methods are safe for concurrent use.
// Close it to give its memory and connections back.
type Client struct {
	// One of the two: the only server there is, or the nodes of a cluster.
	solo  *peer
	fleet *fleet

	bufferBytes atomic.Int64 // of all Buffers
}

// Dial connects to the first of the servers that answers, by the first fabric
// that reaches it. If that is a node of a cluster, it learns from it where the
// keys live; the other nodes are connected when a call needs them.
//
// A server that is not there yet (nobody listens, its name has no address, no
// answer) or has no room is tried again until ctx's deadline, without one until
// Config.Timeout is over; Config.OnWait is told why. What waiting cannot mend ends
// Dial at once: a refused secret, no version in common, another protocol, no
// device. Config.DialOnce never waits.
//
// It fails with ErrConfig, ErrUnavailable, ErrAuth, ErrVersion, ErrProtocol or
// ErrNoRDMA; the fabric's own error is wrapped if a device cannot be opened or
// nobody answers, and a *DialError says how often it was tried.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &Error{Op: "dial", Err: err}
	}
	cfg = cfg.withDefaults()
	p := newPeer(cfg)
	var f *fleet
	if !cfg.Direct {
		f = newFleet(cfg)
		p.fleet = f
	}
	s, err := p.dial(ctx)
	if err != nil {
		p.release()
		if f != nil {
			f.close()
		}
		return nil, p.fail("dial", nil, "", err)
	}
	if s.node != "" {
		p.node = s.node
		f.adopt(p)
		p.serve(s)
		f.wg.Go(f.keep)
		return &Client{fleet: f}, nil
	}
	p.fleet, p.conn.server = nil, s.server
	p.serve(s)
	return &Client{solo: p}, nil
}

// Close ends the sessions and gives everything back. Calls under way fail with
// ErrClosed; puts that were sent, with ErrOutcomeUnknown. Closing twice is
// harmless.
func (c *Client) Close() error {
	if c.solo != nil {
		return c.solo.close()
	}
	return c.fleet.close()
}

// Server describes the session in force; the zero value if there is none. In a
// cluster it is one of them: Nodes has each.
func (c *Client) Server() ServerInfo {
	if c.solo != nil {
		return c.solo.serverInfo()
	}
	for _, p := range c.fleet.known() {
		if info := p.serverInfo(); info.Address != "" {
			return info
		}
	}
	return ServerInfo{}
}

// Counters returns what this client has done since Dial, at all servers
// together, without asking them.
func (c *Client) Counters() Counters {
	if c.solo != nil {
		return c.solo.counters()
	}
	return c.fleet.counters()
}

// get answers one key.
func (c *Client) get(ctx context.Context, op string, key []byte, w *want) error {
	if c.solo != nil {
		return c.solo.get(ctx, op, key, w)
	}
	return c.fleet.get(ctx, op, key, w)
}

// writeKey carries out a write of one key.
func (c *Client) writeKey(ctx context.Context, op string, w *write) error {
	if c.solo != nil {
		return c.solo.writeKey(ctx, op, w)
	}
	key := w.key
	if w.typ == wire.TypeBatch { // its keys are of one shard, or it is refused
		for part := range w.parts() {
			key = part.Key
			break
		}
	}
	return c.fleet.writeKey(ctx, op, key, w)
}

// fail makes the *Error of a call that came to no server.
func (c *Client) fail(op string, key []byte, err error) error {
	if e := (*Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Key: quoteKey(key), Err: asTimeout(err)}
}
