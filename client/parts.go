package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/parts"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/store/layout"
)

// MaxValue is the length of the longest value that a client can put, in bytes; a server may take
// less (ServerInfo). A Buffer, PutAsync, MultiPut and a Batch take up to 64 MiB, or less.
const MaxValue = layout.MaxWholeLen

// PutReader stores size bytes that r has under key, without having all of them in memory: of
// values above Config.PartsAbove three parts at a time, which is 48 MiB. With size -1 it
// stores what r has up to its end; then it reads up to Config.PartsAbove first. It does not read
// beyond size.
//
// It fails as PutWith does, with what r says, and with io.ErrUnexpectedEOF if r ends too
// early; then nothing was changed. What was read of r is lost to the caller in each case. r is used
// by this call alone, one Read after the other.
func (c *Client) PutReader(ctx context.Context, key []byte, r io.Reader, size int64, opts PutOptions) (version uint64, err error) {
	if size < -1 || size > MaxValue {
		return 0, c.fail("put", key, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, int64(MaxValue)))
	}
	terms, err := termsOf(opts)
	if err != nil {
		return 0, c.fail("put", key, err)
	}
	if err := base.CheckKey(key); err != nil {
		return 0, c.fail("put", key, err)
	}
	above := c.rt().Config().PartsAbove
	switch {
	case size > above:
	case size >= 0:
		value := make([]byte, size)
		if _, err := io.ReadFull(r, value); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, c.fail("put", key, err)
		}
		return c.putWith(ctx, key, value, opts)
	default:
		var first bytes.Buffer
		if _, err := io.Copy(&first, io.LimitReader(r, above+1)); err != nil {
			return 0, c.fail("put", key, err)
		}
		if int64(first.Len()) <= above {
			return c.putWith(ctx, key, first.Bytes(), opts)
		}
		r = io.MultiReader(&first, r)
	}
	return parts.PutFrom(ctx, c.rt(), "put", key, r, size, terms)
}

// GetWriter writes the value of key to w, in order, without having all of it in memory: of
// values in parts (above 64 MiB) three at a time, which is 48 MiB. All that it writes is of one version, which
// it returns with the expiry and the length of the value. It fails as Get does, with what w says, and
// with ErrReplaced if the value was replaced and its parts were removed meanwhile, which is a minute
// later at the earliest unless the server has no space left. After an error w may have a part of the value.
func (c *Client) GetWriter(ctx context.Context, key []byte, w io.Writer) (Info, error) {
	q := read.Query{N: -1}
	if err := read.Get(ctx, c.rt(), "get", key, &q); err != nil {
		return Info{}, err
	}
	if q.Head != nil {
		return parts.Stream(ctx, c.rt(), "get", key, parts.Query{N: -1, Head: q.Head, Info: q.Info}, w)
	}
	if _, err := w.Write(q.Dst); err != nil {
		return Info{}, c.fail("get", key, err)
	}
	return q.Info, nil
}
