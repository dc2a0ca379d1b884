package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/read"
)

// Get returns the value of key, in a slice of its own. It fails with
// ErrNotFound if there is none, ErrKeyEmpty, ErrKeyTooLarge, ErrTimeout,
// ErrUnavailable, ErrClosed, or ErrCorrupt. A server that has no room for the
// answer for now is asked again until the time is over; the error is then
// ErrOverloaded as well as ErrTimeout.
func (c *Client) Get(ctx context.Context, key []byte) ([]byte, error) {
	w := read.Query{N: -1}
	if err := c.get(ctx, "get", key, &w); err != nil {
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
func (c *Client) GetInto(ctx context.Context, key, dst []byte) ([]byte, error) {
	w := read.Query{N: -1, Dst: dst[:0]}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, err
	}
	return w.Dst, nil
}

// GetRange returns up to n bytes of the value of key from offset off on, fewer
// if the value ends before. Of a value above 64 KiB only the 64 KiB chunks that
// hold them are READ, and each is verified. An offset beyond the end, or a
// negative argument, is ErrRange; otherwise it fails as Get does. All bytes of
// one call are of one version of the value.
func (c *Client) GetRange(ctx context.Context, key []byte, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, c.fail("get-range", key, fmt.Errorf("%w: offset %d, length %d", ErrRange, off, n))
	}
	w := read.Query{Off: off, N: n}
	if err := c.get(ctx, "get-range", key, &w); err != nil {
		return nil, err
	}
	if w.Dst == nil {
		w.Dst = []byte{}
	}
	return w.Dst, nil
}

// GetItem is Get that also tells version and expiry: what PutWith takes for
// IfVersion, and DeleteIf. All of it is of one moment. It fails as Get does.
func (c *Client) GetItem(ctx context.Context, key []byte) (Item, error) {
	w := read.Query{N: -1, Dst: []byte{}}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return Item{}, err
	}
	return Item{Value: w.Dst, Version: w.Info.Version, Expiry: w.Info.Expiry}, nil
}

// Stat returns size, version and expiry of the value of key. It fails as Get does.
func (c *Client) Stat(ctx context.Context, key []byte) (Info, error) {
	w := read.Query{InfoOnly: true}
	if err := c.get(ctx, "stat", key, &w); err != nil {
		return Info{}, err
	}
	return w.Info, nil
}

// Exists reports whether the store has key. It fails as Get does, but for
// ErrNotFound.
func (c *Client) Exists(ctx context.Context, key []byte) (bool, error) {
	w := read.Query{InfoOnly: true}
	switch err := c.get(ctx, "exists", key, &w); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNotFound):
		return false, nil
	default:
		return false, err
	}
}
