package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) scanCmd() *cobra.Command {
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
			p, err := a.prefix(args, prefix)
			if err != nil {
				return err
			}
			from, err := a.bytes("--after", after)
			if err != nil {
				return err
			}
			first, err := a.bytes("--start", start)
			if err != nil {
				return err
			}
			before, err := a.bytes("--end", end)
			if err != nil {
				return err
			}
			if keysOnly && values {
				return usagef("--keys-only and --values exclude each other")
			}
			if limit < 0 {
				return usagef("--limit is %d, want 0 (all) or more", limit)
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				opt := client.ScanOptions{Prefix: p, Start: first, End: before, After: from, Limit: limit, KeysOnly: !values}
				return a.scan(cmd.Context(), c, opt)
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

// prefix reads a prefix that may be given as an argument or as --prefix.
func (a *app) prefix(args []string, flag string) ([]byte, error) {
	if len(args) == 0 {
		return a.bytes("--prefix", flag)
	}
	if flag != "" {
		return nil, usagef("both PREFIX and --prefix are given")
	}
	return a.bytes("PREFIX", args[0])
}

func (a *app) scan(ctx context.Context, c *client.Client, opt client.ScanOptions) error {
	for e, err := range c.Scan(ctx, opt) {
		if err != nil {
			return err
		}
		var line string
		switch {
		case a.output == "json":
			r := record{Key: e.Key, Value: e.Value, HasValue: !opt.KeysOnly, Size: &e.Size, Version: &e.Version, Expires: e.Expiry}
			line = string(appendRecord(nil, r))
		case opt.KeysOnly:
			line = a.show(e.Key) + "\n"
		default:
			line = a.show(e.Key) + "\t" + a.show(e.Value) + "\n"
		}
		if err := a.print(line); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) countCmd() *cobra.Command {
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
			p, err := a.prefix(args, prefix)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				n, err := countKeys(cmd.Context(), c, p, 0)
				switch {
				case err != nil:
					return err
				case a.output == "json":
					return a.printJSON(struct {
						Count int64 `json:"count"`
					}{n})
				}
				return a.print(fmt.Sprintln(n))
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "the same as PREFIX")
	return cmd
}

// countKeys counts the keys that begin with a prefix, to most at most; 0 means all.
func countKeys(ctx context.Context, c *client.Client, prefix []byte, most int) (n int64, err error) {
	for _, err := range c.Scan(ctx, client.ScanOptions{Prefix: prefix, KeysOnly: true, Limit: most}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
