package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) importCmd() *cobra.Command {
	var format string
	var workers int
	cmd := &cobra.Command{
		Use:        "import [FILE]",
		SuggestFor: []string{"load", "restore"},
		Short:      "store the records of a JSON Lines file",
		Long: `import stores one record a line, {"key":"text","value":"text"}, from FILE or, with
no FILE or "-", from standard input. Bytes that are no text stand in base64 as
key_b64 and value_b64. Of several records with one key the last one counts.

Records are stored as they are read; the first line that is wrong, or put that
fails, ends the import, and what was stored before stays. Importing the same
file again is harmless.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "jsonl" {
				return usagef("--format is %q, want jsonl", format)
			}
			if workers < 1 || workers > 1024 {
				return usagef("--workers is %d, want 1 to 1024", workers)
			}
			in, name, size, err := a.openInput(args)
			if err != nil {
				return err
			}
			defer in.Close()
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				return a.runImport(cmd.Context(), c, in, name, size, workers)
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "jsonl", "format of FILE: jsonl")
	cmd.Flags().IntVar(&workers, "workers", 64, "puts in flight at a time")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// openInput opens the file argument, or standard input. size is 0 where it is
// not known before the end.
func (a *app) openInput(args []string) (in io.ReadCloser, name string, size int64, err error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(a.stdin), "standard input", 0, nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, "", 0, fmt.Errorf("open %s: %w", quote([]byte(args[0])), cause(err))
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		f.Close()
		return nil, "", 0, err
	case st.IsDir():
		f.Close()
		return nil, "", 0, fmt.Errorf("open %s: is a directory", quote([]byte(args[0])))
	case st.Mode().IsRegular():
		size = st.Size()
	}
	return f, quote([]byte(args[0])), size, nil
}

// importBytes bounds the records that wait for their put, in bytes. A record
// larger than that waits alone.
const importBytes = 64 << 20

// runImport reads lines and hands each record to the worker that its key
// names: so puts run in parallel, and two records of one key in file order.
func (a *app) runImport(ctx context.Context, c *client.Client, in io.Reader, name string, size int64, workers int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	show := newProgress(a.stderr, "imported", size, func() map[string]uint64 { return spreadOf(c) })
	room := newBudget(importBytes)
	seed := maphash.MakeSeed()

	var wg sync.WaitGroup
	queues := make([]chan record, workers)
	for i := range queues {
		queues[i] = make(chan record, 8)
		wg.Go(func() {
			for r := range queues[i] {
				if ctx.Err() == nil {
					if err := c.Put(ctx, r.Key, r.Value); err != nil {
						cancel(err)
					} else {
						show.keys.Add(1)
					}
				}
				room.give(r.size())
			}
		})
	}
	readErr := readRecords(bufio.NewReaderSize(in, 256<<10), name, show, func(r record) error {
		room.take(r.size())
		select {
		case queues[maphash.Bytes(seed, r.Key)%uint64(workers)] <- r:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	for _, q := range queues {
		close(q)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		readErr = err
	}
	if readErr == nil {
		show.finish()
	} else {
		show.end()
		// The reason first, on the one line that there is.
		readErr = &storedBefore{readErr, show.keys.Load()}
	}
	if a.output == "json" {
		type result struct {
			Keys    int64   `json:"keys"`
			Bytes   int64   `json:"bytes"`
			Seconds float64 `json:"seconds"`
			// Nodes are the keys that each node of a cluster was given.
			Nodes map[string]uint64 `json:"nodes,omitempty"`
		}
		r := result{show.keys.Load(), show.bytes.Load(), time.Since(show.start).Seconds(), spreadOf(c)}
		return errors.Join(readErr, a.printJSON(r))
	}
	return readErr
}

// storedBefore is the error of an import, and how much of it was done.
type storedBefore struct {
	err  error
	keys int64
}

func (e *storedBefore) Error() string {
	return fmt.Sprintf("%v (%s keys were stored before that)", e.err, thousands(e.keys))
}

func (e *storedBefore) Unwrap() error { return e.err }

// spreadOf is how many puts went to each node of a cluster; nil if there is none.
func spreadOf(c *client.Client) map[string]uint64 {
	nodes := c.Nodes()
	if len(nodes) == 0 || nodes[0].ID() == "" {
		return nil
	}
	puts := make(map[string]uint64)
	for _, n := range nodes {
		puts[n.ID()] = n.Counters().Puts
	}
	return puts
}

// readRecords calls put for each record of the stream, in order.
func readRecords(in *bufio.Reader, name string, show *progress, put func(record) error) error {
	for n := 1; ; n++ {
		text, err := readLine(in)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, cause(err))
		}
		show.bytes.Add(int64(len(text)) + 1)
		if len(text) == 0 {
			continue
		}
		r, err := parseRecord(text)
		if err != nil {
			return fmt.Errorf("%s, line %d %w", name, n, err)
		}
		if err := put(r); err != nil {
			return err
		}
	}
}

// size is what the record costs while it waits.
func (r record) size() int64 { return int64(len(r.Key) + len(r.Value)) }

// A budget bounds the bytes held at a time by many goroutines.
type budget struct {
	mu    sync.Mutex
	freed *sync.Cond // of mu
	limit int64
	used  int64
}

func newBudget(limit int64) *budget {
	b := &budget{limit: limit}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// take waits until n bytes fit. More than the whole budget fits when nothing
// else is held: it must get through some time.
func (b *budget) take(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used > 0 && b.used+n > b.limit {
		b.freed.Wait()
	}
	b.used += n
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.freed.Broadcast()
}
