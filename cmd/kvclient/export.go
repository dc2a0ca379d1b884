package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) exportCmd() *cobra.Command {
	var format, prefix string
	cmd := &cobra.Command{
		Use:        "export [FILE]",
		SuggestFor: []string{"dump", "backup"},
		Short:      "write all records as JSON Lines",
		Long: `export writes one record a line to FILE or, with no FILE or "-", to standard
output, in the byte order of the keys. import reads it back. FILE appears whole
or not at all.

Keys that are written while export runs are in it with their old or new value.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "jsonl" {
				return usagef("--format is %q, want jsonl", format)
			}
			p, err := a.bytes("--prefix", prefix)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				run := func(w io.Writer) error { return a.runExport(cmd.Context(), c, p, w) }
				if len(args) == 0 || args[0] == "-" {
					return run(a.stdout)
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

func (a *app) runExport(ctx context.Context, c *client.Client, prefix []byte, w io.Writer) (failed error) {
	out := bufio.NewWriterSize(w, 256<<10)
	show := newProgress(a.stderr, "exported", 0, nil)
	defer func() { a.finish(show, failed) }()
	var line []byte
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: prefix}) {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		line = appendRecord(line[:0], record{Key: e.Key, Value: e.Value, HasValue: true})
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write: %w", cause(err))
		}
		show.keys.Add(1)
		show.bytes.Add(int64(len(line)))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write: %w", cause(err))
	}
	return nil
}

// writeWhole writes a file by way of a temporary one beside it, so that a
// failure leaves what was there. What is no regular file (a pipe, a device)
// is written to directly.
func writeWhole(path string, run func(io.Writer) error) (err error) {
	defer func() {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = fmt.Errorf("write %s: %w", quote([]byte(path)), pe.Err)
		}
	}()
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(run(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing to remove
	if err := errors.Join(run(f), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
