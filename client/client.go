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
// The parts, one idea a file: client (what a program sees), peer (what is behind
// it for one server), write, requestid and staged (writes that take effect
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
	"errors"
	"log/slog"
)

// A Client is a connection to a store that keeps itself alive. All methods are
// safe for concurrent use. Close it to give its memory and connection back.
type Client struct {
	cfg  Config
	log  *slog.Logger
	solo *peer // the one server that there is
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
	c := &Client{cfg: cfg, log: cfg.Logger}
	p := newPeer(cfg)
	if err := p.dial(ctx); err != nil {
		return nil, err
	}
	c.solo = p
	return c, nil
}

// Close ends the session and gives everything back. Calls under way fail with
// ErrClosed; puts that were sent, with ErrOutcomeUnknown. Closing twice is
// harmless.
func (c *Client) Close() error { return c.solo.close() }

// Server describes the session in force; the zero value if there is none.
func (c *Client) Server() ServerInfo { return c.solo.serverInfo() }

// Counters returns what this client has done since Dial, without asking the
// server.
func (c *Client) Counters() Counters { return c.solo.counters() }

// get answers one key.
func (c *Client) get(ctx context.Context, op string, key []byte, w *want) error {
	return c.solo.get(ctx, op, key, w)
}

// writeKey carries out a write of one key, or of a batch.
func (c *Client) writeKey(ctx context.Context, op string, w *write) error {
	return c.solo.writeKey(ctx, op, w)
}

// fail makes the *Error of a call that came to no server.
func (c *Client) fail(op string, key []byte, err error) error {
	if e := (*Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Key: quoteKey(key), Err: err}
}
