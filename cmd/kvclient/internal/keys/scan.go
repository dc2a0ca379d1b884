package keys

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// scanCmd is scan. It prints keys as they come, page by page, so a scan of a large
// store begins at once and needs no memory; a reader that has enough ends it by
// closing the pipe.
func scanCmd(a *app.App) *cobra.Command {
	var prefix, after, start, end string
	var limit int
	var values, keysOnly bool
	cmd := &cobra.Command{
		Use:        "scan [PREFIX]",
		SuggestFor: []string{"keys", "ls", "list", "range", "find"},
		Short:      "list keys in byte order",
		Long: `scan prints one key a line; with PREFIX only keys that begin so. Keys that are not
plain text are printed quoted, or all in hexadecimal with --hex. With -o json each
line is an object with the key, the size of its value, its version and when it
expires. A scan that was ended by --limit goes on with --after and the last key.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			// All of these may be given together: each takes keys away.
			p, err := prefixOf(a, args, prefix)
			if err != nil {
				return err
			}
			from, err := a.Bytes("--after", after)
			if err != nil {
				return err
			}
			first, err := a.Bytes("--start", start)
			if err != nil {
				return err
			}
			before, err := a.Bytes("--end", end)
			if err != nil {
				return err
			}
			// --keys-only is the default and exists because people look for it.
			if keysOnly && values {
				return cli.Usagef("--keys-only and --values exclude each other")
			}
			if limit < 0 {
				return cli.Usagef("--limit is %d, want 0 (all) or more", limit)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				opt := client.ScanOptions{Prefix: p, Start: first, End: before, After: from, Limit: limit, KeysOnly: !values}
				return listKeys(cmd.Context(), a, c, opt)
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "the same as PREFIX")
	cmd.Flags().StringVar(&after, "after", "", "only keys behind this one")
	cmd.Flags().StringVar(&start, "start", "", "only keys from this one on")
	cmd.Flags().StringVar(&end, "end", "", "only keys before this one")
	cmd.Flags().BoolVar(&keysOnly, "keys-only", false, "no values, which is also the default")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many keys; 0 means all")
	cmd.Flags().BoolVar(&values, "values", false, "values too: behind a tab, or in the JSON object")
	return cmd
}

// listKeys prints one line for each key of a scan.
func listKeys(ctx context.Context, a *app.App, c *client.Client, opt client.ScanOptions) error {
	for e, err := range c.Scan(ctx, opt) {
		if err != nil {
			return err
		}
		// Without values the server sends none, and still tells their size.
		var line string
		switch {
		case a.Output == "json":
			r := record{Key: e.Key, Value: e.Value, HasValue: !opt.KeysOnly, Size: &e.Size, Version: &e.Version, Expires: e.Expiry}
			line = string(appendRecord(nil, r))
		case opt.KeysOnly:
			line = a.Show(e.Key) + "\n"
		default:
			line = a.Show(e.Key) + "\t" + a.Show(e.Value) + "\n"
		}
		if err := a.Print(line); err != nil {
			return err
		}
	}
	return nil
}

// countCmd is count. There is no cheaper way than to go through the keys: a server
// counts those it holds, and a prefix, or a tenant's own keys, are some of them.
func countCmd(a *app.App) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:        "count [PREFIX]",
		SuggestFor: []string{"dbsize", "size", "len"},
		Short:      "count keys; with PREFIX those that begin so",
		Long: `count goes through the keys, as scan does, and prints how many there are. Keys
that are written or deleted meanwhile may be counted or not, all others are
counted once.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := prefixOf(a, args, prefix)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				n, err := countKeys(cmd.Context(), c, p, 0)
				switch {
				case err != nil:
					return err
				case a.Output == "json":
					return a.PrintJSON(struct {
						Count int64 `json:"count"`
					}{n})
				}
				return a.Print(fmt.Sprintln(n))
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "the same as PREFIX")
	return cmd
}

// countKeys counts the keys that begin with a prefix, to most at most; 0 means all.
func countKeys(ctx context.Context, c *client.Client, prefix []byte, most int) (n int64, err error) {
	// Values stay where they are: only keys travel.
	for _, err := range c.Scan(ctx, client.ScanOptions{Prefix: prefix, KeysOnly: true, Limit: most}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
