package keys

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/semaphore"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// importCmd is import. It stores records as it reads them, so a file of any size
// needs no more memory than the records under way; the price is that a wrong line
// in the middle leaves the records before it stored.
func importCmd(a *app.App) *cobra.Command {
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
			// There is one format; the flag is for scripts that want to name it.
			if format != "jsonl" {
				return cli.Usagef("--format is %q, want jsonl", format)
			}
			if workers < 1 || workers > 1024 {
				return cli.Usagef("--workers is %d, want 1 to 1024", workers)
			}
			// This comes before the server is dialed: if the file is not there, no
			// server is needed.
			in, name, size, err := openInput(a, args)
			if err != nil {
				return err
			}
			defer in.Close()
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				return runImport(cmd.Context(), a, c, in, name, size, workers)
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "jsonl", "format of FILE: jsonl")
	cmd.Flags().IntVar(&workers, "workers", 64, "puts in flight at a time")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// importBytes bounds the records that wait for their put, in bytes: workers alone
// would not, because a record may be as large as a value. A record larger than that
// waits alone.
const importBytes = 64 << 20

// runImport reads lines and hands each record to the worker that its key
// names: so puts run in parallel, and two records of one key in file order.
func runImport(ctx context.Context, a *app.App, c *client.Client, in io.Reader, name string, size int64, workers int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	show := app.NewProgress(a.Stderr, "imported", size, func() map[string]uint64 { return spreadOf(c) })
	room := semaphore.NewWeighted(importBytes)
	seed := maphash.MakeSeed() // any: a key goes to the same worker for the time of this import

	var wg sync.WaitGroup
	// A queue for each worker, and not one for all: which worker takes a record
	// decides its place among those with the same key.
	queues := make([]chan record, workers)
	for i := range queues {
		queues[i] = make(chan record, 8)
		wg.Go(func() {
			for r := range queues[i] {
				// After the first error the records that wait are dropped: the
				// import ends there, and the same command does the rest.
				if ctx.Err() == nil {
					if err := c.Put(ctx, r.Key, r.Value); err != nil {
						cancel(err)
					} else {
						show.Keys.Add(1)
					}
				}
				room.Release(r.size())
			}
		})
	}
	readErr := readRecords(bufio.NewReaderSize(in, 256<<10), name, show, func(r record) error {
		if room.Acquire(ctx, r.size()) != nil {
			return context.Cause(ctx)
		}
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
	// A put that failed is the reason, not the reading that it ended.
	if err := context.Cause(ctx); err != nil {
		readErr = err
	}
	// Not App.Finish: the number of keys stands in the error itself here.
	if readErr == nil {
		show.Finish()
	} else {
		show.End()
		// The reason comes first, on the one line that there is.
		readErr = &storedBefore{readErr, show.Keys.Load()}
	}
	// A script gets the figures of an import that failed, too.
	if a.Output == "json" {
		type result struct {
			Keys    int64   `json:"keys"`
			Bytes   int64   `json:"bytes"`
			Seconds float64 `json:"seconds"`
			// Nodes are the keys that each node of a cluster was given.
			Nodes map[string]uint64 `json:"nodes,omitempty"`
		}
		r := result{show.Keys.Load(), show.Bytes.Load(), time.Since(show.Begun).Seconds(), spreadOf(c)}
		return errors.Join(readErr, a.PrintJSON(r))
	}
	return readErr
}

// storedBefore is the error of an import, and how much of it was done: a user has
// to know whether anything changed, and finds it on the line that tells why the
// import ended.
type storedBefore struct {
	err  error
	keys int64
}

func (e *storedBefore) Error() string {
	return fmt.Sprintf("%v (%s keys were stored before that)", e.err, cli.Thousands(e.keys))
}

func (e *storedBefore) Unwrap() error { return e.err }

// spreadOf is how many puts went to each node of a cluster; nil if the server is
// alone.
func spreadOf(c *client.Client) map[string]uint64 {
	nodes := admin.Of(c).Nodes()
	if len(nodes) == 0 || nodes[0].ID() == "" {
		return nil
	}
	// The library counts what it sent to each node, so no node has to be asked.
	puts := make(map[string]uint64)
	for _, n := range nodes {
		puts[n.ID()] = n.Counters().Puts
	}
	return puts
}

// readRecords calls put for each record of the stream, in order, and ends at the
// first line that is wrong, which its error names by number.
func readRecords(in *bufio.Reader, name string, show *app.Progress, put func(record) error) error {
	for n := 1; ; n++ {
		text, err := readLine(in)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, cli.Cause(err))
		}
		show.Bytes.Add(int64(len(text)) + 1) // with the newline: the bar compares with the file's size
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

// size is what the record costs while it waits. A semaphore never has more than its
// size, so a record that is larger takes all of it, and waits alone.
func (r record) size() int64 { return min(int64(len(r.Key)+len(r.Value)), importBytes) }
