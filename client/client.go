// Package client is the Go client of rdmakv.
//
// A get is a one-sided RDMA READ: this package computes where the key's slot
// must be, READs the server's index and the item from its registered memory,
// and decides by itself whether what it has read is the value. The server's
// CPU takes no part. A put is a message: the server makes it durable, then
// visible, then answers.
//
//	import _ "github.com/rdmakv/rdmakv/client/fabrics" // all ways to the server; or name yours in Config
//
//	c, err := client.Dial(ctx, client.Config{Servers: []string{"kv1:7400"}})
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
//     others', and never goes back in time. One with ReadBounded may be late by as much as it says.
//   - A write (put, delete, increment, touch, batch) whose reply was lost is sent
//     again over reconnects and restarts of the server, and takes effect once. It
//     fails with ErrOutcomeUnknown if its time is over before its outcome is
//     known, and with nothing else if it may have taken effect.
//   - Whether a key has expired is decided by the server's time alone.
//   - The connection is made again by itself when it is lost.
//   - Of several fabrics the first that reaches the server is used;
//     Admin.Server of client/admin says which one, and why no better one.
//   - In a cluster each key leads to the node that owns it, by the shard map that
//     the nodes have agreed on; any of them will do for Dial. A node that is away
//     costs the calls for its own keys alone: they fail with ErrUnavailable, those
//     with many keys with a *PartialError beside what the others have answered.
//   - Where shards have replicas, calls go to the one that leads, and wait for another
//     to lead when it falls. A write is still applied once, whichever replicas it meets. A get is
//     READs as ever, and counts if the memory of a majority says that its node leads (docs/replication.md).
//
// # How it is built
//
// This package is what a program sees; the work is done in rooms below it, each of which
// imports only those under it (client/admin stands beside this package):
//
//	client                  calls, their options and errors
//	admin                   what tools and operators ask: nodes, the cluster, the memory
//	internal/parts          values that are larger than one item can be
//	internal/read, write    what a get READs and what it may believe; writes that take effect once
//	internal/route          a key leads to a server: the map of a cluster, or the only server
//	internal/peer           one server over all connections to it
//	internal/session        one connection: requests, READs, the lease
//	internal/device, places registered memory; where items are
//	internal/base           values, errors, counters, clocks
//
// The way of a get: Client.Get, read.Get, Router.Owner, Peer.Session, Session.NewReads. The
// way of a put: Client.Put, write.Do, Router.Owner, Peer.Session, Session.Open, Slot.Call.
package client

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/parts"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/write"
)

// A Client is a connection to a store, to one server or to all nodes of a
// cluster, that keeps itself alive. All methods are safe for concurrent use.
// Close it to give its memory and connections back.
type Client route.Router

// rt is the client as what leads its calls to servers.
func (c *Client) rt() *route.Router { return (*route.Router)(c) }

// Dial connects to the first of the servers that answers, by the first fabric
// that reaches it. If that is a node of a cluster, it learns from it where the
// keys live; the other nodes are connected when a call needs them.
//
// A server that is not there yet (nothing listens, its name has no address, no
// answer) or has no room is tried again until ctx's deadline, without one until
// Config.Timeout is over; Config.OnWait is told why. What waiting cannot mend ends
// Dial at once: a refused secret, no version in common, another protocol, no
// device. Config.DialOnce never waits.
//
// It fails with ErrConfig, ErrUnavailable, ErrAuth, ErrVersion, ErrProtocol or
// ErrNoRDMA; the fabric's own error is wrapped if a device cannot be opened or
// no server answers, and a *DialError says how often it was tried.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &Error{Op: "dial", Err: err}
	}
	whole := base.Config(cfg.withDefaults())
	f, err := route.Dial(ctx, &whole)
	if err != nil {
		return nil, err
	}
	return (*Client)(f), nil
}

// Close ends the sessions and gives everything back. Calls under way fail with
// ErrClosed; puts that were sent, with ErrOutcomeUnknown. Those of PutAsync have
// ended when it returns. Closing twice is harmless.
func (c *Client) Close() error {
	err := c.rt().Close()
	_ = write.Async(c.rt()).Flush(context.Background()) // it fails with its context alone
	return err
}

// Ping sends a message to the server and returns how long the answer took. The
// server answers it without its store, so it shows that the connection lives,
// not that puts succeed. In a cluster it asks each node that owns keys, side by
// side, and returns the longest; it fails with a *PartialError.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	return c.rt().Slowest(ctx, "ping", func(p *peer.Peer) (time.Duration, error) { return p.Ping(ctx) })
}

// Counters returns what this client has done since Dial, at all servers
// together, without asking them.
func (c *Client) Counters() Counters { return c.rt().Counters() }

// get answers one key.
func (c *Client) get(ctx context.Context, op string, key []byte, w *read.Query) error {
	return c.answered(ctx, op, key, w, read.Get(ctx, c.rt(), op, key, w))
}

// answered completes the answer to a get of one key, which ended with err: a value may be in parts.
func (c *Client) answered(ctx context.Context, op string, key []byte, w *read.Query, err error) error {
	if err != nil || w.Head == nil {
		return err
	}
	if w.Sink != nil {
		return c.fail(op, key, fmt.Errorf("%w: it is in parts, which no Buffer takes", ErrTooLarge))
	}
	v, err := parts.Get(ctx, c.rt(), op, key, parts.Query{Off: w.Off, N: w.N, Dst: w.Dst, Head: w.Head, Info: w.Info})
	if err != nil {
		return err
	}
	w.Dst, w.Info, w.Path = v.Dst, v.Info, base.PathLarge
	return nil
}

// writeKey carries out a write of one key, or of a batch.
func (c *Client) writeKey(ctx context.Context, op string, w *write.Write) error {
	return write.Do(ctx, c.rt(), op, w)
}

// fail makes the *Error of a call that came to no server.
func (c *Client) fail(op string, key []byte, err error) error { return c.rt().Fail(op, key, err) }
