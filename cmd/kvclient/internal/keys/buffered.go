package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Files of large values go through registered memory: put reads the file into it
// and the server READs it from there; get does the reverse. What is larger than one item
// can be goes part by part, and is never in memory as a whole (streamed.go).

// bufferFrom is the size from which values travel by READ whatever the server. A
// smaller one may fit a message, and registering memory for it would cost more than
// it saves.
const bufferFrom = layout.ChunkSize + 1

// openLarge opens a file that is to be put through a buffer. f is nil, without an
// error, for any other file: one that is not regular has no size to make a buffer
// of, a small one needs none, and one that is too large for a value, or cannot be
// looked at, is refused with the right message by the code that reads it otherwise.
// The caller closes f.
func openLarge(path string) (f *os.File, size int, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() < bufferFrom || info.Size() > layout.MaxValueLen {
		return nil, 0, nil // reading it in the other way tells what is wrong
	}
	if f, err = os.Open(path); err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", cli.Quote([]byte(path)), cli.Cause(err))
	}
	return f, int(info.Size()), nil
}

// putFile stores the first size bytes of f. The size was looked at before: a file
// that has become shorter meanwhile is an error (io.ErrUnexpectedEOF), one that has
// grown is stored as far as it reached.
func putFile(ctx context.Context, c *client.Client, key []byte, f *os.File, size int, opts client.PutOptions) (version uint64, err error) {
	name := cli.Quote([]byte(f.Name()))
	buf, err := c.NewBuffer(size)
	if err != nil { // no memory for it: as any other value
		value := make([]byte, size)
		if _, err := io.ReadFull(f, value); err != nil {
			return 0, fmt.Errorf("read %s: %w", name, cli.Cause(err))
		}
		return c.PutWith(ctx, key, value, opts)
	}
	defer buf.Free()
	if _, err := io.ReadFull(f, buf.Bytes()); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, cli.Cause(err))
	}
	return buf.Put(ctx, key, size, opts)
}

// getFile hands the value of key to use, which must not keep it: it may lie in
// registered memory, which is freed afterwards. The size is asked for first,
// because a buffer has to be large enough before the value comes; a value that has
// grown meanwhile is got in the ordinary way.
func getFile(ctx context.Context, c *client.Client, key []byte, use func(value []byte) error) error {
	info, err := c.Stat(ctx, key)
	if err != nil {
		return err
	}
	if info.Size >= bufferFrom && info.Size <= layout.MaxValueLen {
		if buf, err := c.NewBuffer(int(info.Size)); err == nil {
			defer buf.Free()
			value, err := buf.Get(ctx, key)
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
