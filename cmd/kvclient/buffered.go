package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Files of large values go through registered memory: from the file into it, and
// from there the server READs them; and back.

// bufferFrom is the size from which values travel by READ whatever the server.
const bufferFrom = layout.ChunkSize + 1

// openLarge opens a file that is to be put through a buffer; nil, and no error, if
// it is none of those: not a regular file, small, or too large for a value.
func openLarge(path string) (f *os.File, size int, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() < bufferFrom || info.Size() > layout.MaxValueLen {
		return nil, 0, nil // whoever reads it in the other way says what is wrong
	}
	if f, err = os.Open(path); err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", quote([]byte(path)), cause(err))
	}
	return f, int(info.Size()), nil
}

// putFile stores the first size bytes of f.
func putFile(ctx context.Context, c *client.Client, key []byte, f *os.File, size int, opts client.PutOptions) (version uint64, err error) {
	name := quote([]byte(f.Name()))
	buf, err := c.NewBuffer(size)
	if err != nil { // no memory for it: as any other value
		value := make([]byte, size)
		if _, err := io.ReadFull(f, value); err != nil {
			return 0, fmt.Errorf("read %s: %w", name, cause(err))
		}
		return c.PutWith(ctx, key, value, opts)
	}
	defer buf.Free()
	if _, err := io.ReadFull(f, buf.Bytes()); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, cause(err))
	}
	return c.PutBuffer(ctx, key, buf, size, opts)
}

// getFile hands the value of key to use, which must not keep it.
func getFile(ctx context.Context, c *client.Client, key []byte, use func(value []byte) error) error {
	info, err := c.Stat(ctx, key)
	if err != nil {
		return err
	}
	if info.Size >= bufferFrom {
		if buf, err := c.NewBuffer(int(info.Size)); err == nil {
			defer buf.Free()
			value, err := c.GetBuffer(ctx, key, buf)
			if err == nil {
				return use(value)
			}
			if !errors.Is(err, client.ErrTooLarge) { // else it has grown meanwhile
				return err
			}
		}
	}
	value, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	return use(value)
}
