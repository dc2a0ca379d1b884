package keys

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// getStream writes the value of key to where the user told get to write it, if it is so
// large that it is better not in memory as a whole; done says whether it was. A file appears when it has
// the whole value, or not at all; one that is no regular file, a pipe say, is written to.
func getStream(ctx context.Context, a *app.App, c *client.Client, key []byte, file string) (done bool, err error) {
	info, err := c.Stat(ctx, key)
	if err != nil || info.Size <= layout.MaxValueLen {
		return false, nil // the get says what is wrong
	}
	if file == "" || file == "-" {
		err = streamTo(ctx, c, key, a.Stdout, "standard output")
		if err == nil && cli.IsTerminal(a.Stdout) {
			err = a.Print("\n")
		}
		return true, err
	}
	name := cli.Quote([]byte(file))
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return true, fmt.Errorf("write %s: %w", name, cli.Cause(err))
		}
		defer f.Close()
		return true, streamTo(ctx, c, key, f, name)
	}
	f, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return true, fmt.Errorf("write %s: %w", name, cli.Cause(err))
	}
	defer f.Cleanup() // after the rename there is nothing to remove
	if err := streamTo(ctx, c, key, f, name); err != nil {
		return true, err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return true, fmt.Errorf("write %s: %w", name, cli.Cause(err))
	}
	return true, nil
}

// A named writer says of an error what could not be written.
type named struct {
	w    io.Writer
	name string
	err  error
}

func (w *named) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		w.err = fmt.Errorf("write %s: %w", w.name, cli.Cause(err))
	}
	return n, err
}

func streamTo(ctx context.Context, c *client.Client, key []byte, w io.Writer, name string) error {
	out := &named{w: w, name: name}
	if _, err := c.GetWriter(ctx, key, out); err != nil && out.err == nil {
		return err
	}
	return out.err
}
