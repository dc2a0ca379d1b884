package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/read"
)

// A ReadOption changes what one call may answer, or where it puts the answer. The zero value changes nothing.
type ReadOption struct {
	bounded bool
	bound   time.Duration
	into    []Result
}

// ReadInto has MultiGet use the results of an earlier call again: they and the memory of their values are overwritten as far as they are large enough. With it
// a program whose gets are answered one-sidedly allocates nothing on a fabric that maps the memory of the server, and little on others. For other
// calls it is ErrOptions.
func ReadInto(results []Result) ReadOption { return ReadOption{into: results} }

// boundOf is the least of the bounds among options; 0: there is none.
func boundOf(opts []ReadOption) (bound time.Duration, err error) {
	for i := range opts {
		switch o := &opts[i]; {
		case !o.bounded:
		case o.bound <= 0:
			return 0, fmt.Errorf("%w: a bound of %v, more than 0 is possible", ErrRange, o.bound)
		case bound == 0 || o.bound < bound:
			bound = o.bound
		}
	}
	return bound, nil
}

// ReadBounded lets a call answer with what was true up to d before it began, d > 0: it shows each write that was acknowledged, to anybody, before
// that, and may lack later ones, the caller's own too. In a cluster with replicas it is then one READ at any of them, chosen by the client, where other gets READ at
// the one that leads and ask others whether it does; so it takes load off leaders, and goes on for up to d while a group has none. It shows nothing of a write that was
// not acknowledged, or is not about to be. Calls with a bound, of one client, do not go back behind each other; behind
// a call without one, or a put, they may. d is counted by the clock of this program alone: clocks of other machines do not matter. If no replica is known to be new enough, or d is below a
// millisecond, the call is as without a bound, and so it is for keys without replicas, and for values in parts. A d of 0 or less is ErrRange.
func ReadBounded(d time.Duration) ReadOption { return ReadOption{bounded: true, bound: d} }

// read answers one key.
func (c *Client) read(ctx context.Context, op string, key []byte, w *read.Query, opts []ReadOption) error {
	bound, err := boundOf(opts)
	for i := range opts {
		if opts[i].into != nil {
			err = fmt.Errorf("%w: ReadInto is for MultiGet", ErrOptions)
		}
	}
	if err != nil {
		return c.fail(op, key, err)
	}
	if bound > 0 {
		err := read.Bounded(ctx, c.rt(), op, key, w, bound)
		if w.Head != nil { // its parts are got without a bound
			defer read.Showed(c.rt(), key)
		}
		return c.answered(ctx, op, key, w, err)
	}
	return c.get(ctx, op, key, w)
}

// Get returns the value of key, in a slice of its own. It fails with
// ErrNotFound if there is none, ErrKeyEmpty, ErrKeyTooLarge, ErrTimeout,
// ErrUnavailable, ErrClosed, or ErrCorrupt. A server that has no room for the
// answer for now is asked again until the time is over; the error is then
// ErrOverloaded as well as ErrTimeout.
func (c *Client) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	w := read.Query{N: -1}
	if err := c.read(ctx, "get", key, &w, opts); err != nil {
		return nil, err
	}
	if w.Dst == nil {
		w.Dst = []byte{}
	}
	return w.Dst, nil
}

// GetInto is Get into memory of the caller: the value overwrites dst from its
// beginning and the slice that holds it is returned, which is dst[:n] if the
// capacity of dst was enough and a new slice otherwise. With enough capacity,
// and where the get is answered one-sidedly, it allocates nothing. After an
// error the content of dst is undefined.
func (c *Client) GetInto(ctx context.Context, key, dst []byte, opts ...ReadOption) ([]byte, error) {
	w := read.Query{N: -1, Dst: dst[:0]}
	if err := c.read(ctx, "get", key, &w, opts); err != nil {
		return nil, err
	}
	return w.Dst, nil
}

// GetRange returns up to n bytes of the value of key from offset off on, fewer
// if the value ends before. Of a value above 64 KiB only the 64 KiB chunks that
// hold them are READ, and each is verified. An offset beyond the end, or a
// negative argument, is ErrRange; otherwise it fails as Get does. All bytes of
// one call are of one version of the value.
func (c *Client) GetRange(ctx context.Context, key []byte, off, n int64, opts ...ReadOption) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, c.fail("get-range", key, fmt.Errorf("%w: offset %d, length %d", ErrRange, off, n))
	}
	w := read.Query{Off: off, N: n}
	if err := c.read(ctx, "get-range", key, &w, opts); err != nil {
		return nil, err
	}
	if w.Dst == nil {
		w.Dst = []byte{}
	}
	return w.Dst, nil
}

// GetItem is Get that also tells version and expiry: what PutWith takes for
// IfVersion, and DeleteIf. All of it is of one moment. It fails as Get does.
func (c *Client) GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error) {
	w := read.Query{N: -1, Dst: []byte{}}
	if err := c.read(ctx, "get", key, &w, opts); err != nil {
		return Item{}, err
	}
	return Item{Value: w.Dst, Version: w.Info.Version, Expiry: w.Info.Expiry}, nil
}

// Stat returns size, version and expiry of the value of key. It fails as Get does.
func (c *Client) Stat(ctx context.Context, key []byte, opts ...ReadOption) (Info, error) {
	w := read.Query{InfoOnly: true}
	if err := c.read(ctx, "stat", key, &w, opts); err != nil {
		return Info{}, err
	}
	return w.Info, nil
}

// Exists reports whether the store has key. It fails as Get does, but for
// ErrNotFound.
func (c *Client) Exists(ctx context.Context, key []byte, opts ...ReadOption) (bool, error) {
	w := read.Query{InfoOnly: true}
	switch err := c.read(ctx, "exists", key, &w, opts); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNotFound):
		return false, nil
	default:
		return false, err
	}
}
