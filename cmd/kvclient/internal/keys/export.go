package keys

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// exportCmd is export: it writes what import reads. There is one format; the flag
// exists so that scripts can name it, and another can come.
func exportCmd(a *app.App) *cobra.Command {
	var format, prefix string
	cmd := &cobra.Command{
		Use:        "export [FILE]",
		SuggestFor: []string{"dump", "backup"},
		Short:      "write all records as JSON Lines",
		Long: `export writes one record a line to FILE or, with no FILE or "-", to standard
output, in the byte order of the keys. import reads it back. FILE appears whole
or not at all.

Keys that are written while export runs are in it with their old or new value.
A value of more than 64 MiB is an error: get it by itself.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "jsonl" {
				return cli.Usagef("--format is %q, want jsonl", format)
			}
			p, err := a.Bytes("--prefix", prefix)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				run := func(w io.Writer) error { return runExport(cmd.Context(), a, c, p, w) }
				if len(args) == 0 || args[0] == "-" {
					return run(a.Stdout)
				}
				return writeWhole(args[0], run)
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "jsonl", "format to write: jsonl")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// runExport scans and writes. An error of the scan leaves what was written before
// it on a stream, because it is gone already; a file appears whole or not at all
// (writeWhole).
func runExport(ctx context.Context, a *app.App, c *client.Client, prefix []byte, w io.Writer) (failed error) {
	// A record is some 100 bytes: written one by one they would cost a system call
	// each.
	out := bufio.NewWriterSize(w, 256<<10)
	show := app.NewProgress(a.Stderr, "exported", 0, nil)
	defer func() { a.Finish(show, failed) }()
	var line []byte // used again for each record
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: prefix}) {
		if err != nil {
			// What was scanned before the error is whole lines, and is worth
			// having.
			return errors.Join(err, out.Flush())
		}
		if len(e.Value) > layout.MaxValueLen {
			// import has a line in memory, several times over.
			return errors.Join(fmt.Errorf("key %s has a value of %d bytes, and a record of an export at most %d: get it by itself, and export the others by --prefix", cli.Quote(e.Key), len(e.Value), layout.MaxValueLen), out.Flush())
		}
		line = appendRecord(line[:0], record{Key: e.Key, Value: e.Value, HasValue: true})
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write: %w", cli.Cause(err))
		}
		show.Keys.Add(1)
		show.Bytes.Add(int64(len(line)))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", cli.Cause(err))
	}
	return nil
}

// writeWhole writes a file by way of a temporary one beside it, so that a failure
// leaves the old file: beside it, because a rename works within one file system
// only. A file that is not regular (a pipe, a device) is written to directly.
func writeWhole(path string, run func(io.Writer) error) (err error) {
	defer func() {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = fmt.Errorf("write %s: %w", cli.Quote([]byte(path)), pe.Err)
		}
	}()
	// /dev/stdout and a named pipe must not be replaced by a file.
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(run(f), f.Close())
	}
	// The permissions are those of any file: a temporary one is its owner's alone.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup() // after the rename there is nothing to remove
	if err := run(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
