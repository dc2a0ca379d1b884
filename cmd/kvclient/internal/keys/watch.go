package keys

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// watchCmd is watch. It has no end of its own unless --count is given, so an
// interruption is how it ends, and no failure.
func watchCmd(a *app.App) *cobra.Command {
	var prefix, from string
	var opts client.WatchOptions
	var count int
	var position bool
	cmd := &cobra.Command{
		Use:        "watch",
		SuggestFor: []string{"subscribe", "monitor", "follow", "tail"},
		Short:      "print changes of keys as they happen",
		Long: `watch prints one line for each change, in the order in which they took effect:
what happened (put, delete, expire, touch) and the key, behind a tab. A line
"skip" says that changes may have been missed there: the server keeps only the
newest ones. It ends after --count changes, else by Ctrl-C, with exit code 130 and
without a word.

With -o json each line is an object that has the position behind the change.
--from takes such a position and goes on there; --position prints the one of now
and does nothing else.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.Bytes("--prefix", prefix)
			if err != nil {
				return err
			}
			if opts.From, err = client.ParsePosition(from); err != nil {
				return cli.Usagef("--from %s: %v", cli.Quote([]byte(from)), err)
			}
			// 0 is "without end", as a limit of 0 is everywhere here.
			if count < 0 {
				return cli.Usagef("--count is %d, want 0 (no end) or more", count)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				// A user who reads the position before anything is written, and
				// watches from there later, misses nothing in between.
				if position {
					now, err := c.Position(cmd.Context())
					if err != nil {
						return err
					}
					if a.Output == "json" {
						return a.PrintJSON(struct {
							Position string `json:"position"`
						}{now.String()})
					}
					return a.Print(now.String() + "\n")
				}
				err := printChanges(cmd.Context(), a, c, p, opts, count)
				// The user knows that Ctrl-C cut the watch short, whatever the
				// library says of it. A deadline is no interruption.
				if err != nil && errors.Is(cmd.Context().Err(), context.Canceled) {
					return app.ErrInterrupted
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Flags().StringVar(&from, "from", "", "what was written behind this position; else from now on")
	cmd.Flags().BoolVar(&opts.Values, "values", false, "values of puts too: behind a tab, or in the JSON object")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many changes; 0 means never")
	cmd.Flags().BoolVar(&position, "position", false, "print the position of now")
	return cmd
}

// printChanges prints one line for each change, until count of them are printed; 0
// means that they are not counted.
func printChanges(ctx context.Context, a *app.App, c *client.Client, prefix []byte, opts client.WatchOptions, count int) error {
	for e, err := range c.Watch(ctx, prefix, opts) {
		if err != nil {
			return err
		}
		// Each change is written at once: a user who watches wants to see it happen.
		if err := a.Print(eventLine(a, e)); err != nil {
			return err
		}
		// From 0 it goes below zero, and never comes back to it.
		if count--; count == 0 {
			return nil
		}
	}
	return nil
}

// eventLine is one line for a change. A change that was skipped has neither a key
// nor a version: it stands for those that the server did not keep. The JSON object
// is put together from the record that scan and get print, so that the same names
// mean the same.
func eventLine(a *app.App, e client.Event) string {
	if a.Output == "json" {
		line := append([]byte(`{"op":`), strconv.Quote(e.Op.String())...)
		if !e.Skipped {
			r := record{Key: e.Key, Value: e.Value, HasValue: e.HasValue, Version: &e.Version}
			// Only a put has a value, whose size is told whether the value is or
			// not.
			if e.Op == client.EventPut {
				r.Size = &e.Size
			}
			rest := appendRecord(nil, r)
			line = append(append(line, ','), rest[1:len(rest)-2]...)
		}
		// More changes of the same batch follow, which took effect together.
		if e.More {
			line = append(line, `,"more":true`...)
		}
		return string(line) + fmt.Sprintf(",\"position\":%q}\n", e.Position)
	}
	line := e.Op.String()
	if !e.Skipped {
		line += "\t" + a.Show(e.Key)
	}
	if e.HasValue {
		line += "\t" + a.Show(e.Value)
	}
	return line + "\n"
}
