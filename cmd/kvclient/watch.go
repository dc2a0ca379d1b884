package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) watchCmd() *cobra.Command {
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
			p, err := a.bytes("--prefix", prefix)
			if err != nil {
				return err
			}
			if opts.From, err = client.ParsePosition(from); err != nil {
				return usagef("--from %s: %v", quote([]byte(from)), err)
			}
			if count < 0 {
				return usagef("--count is %d, want 0 (no end) or more", count)
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if position {
					now, err := c.Position(cmd.Context())
					if err != nil {
						return err
					}
					if a.output == "json" {
						return a.printJSON(struct {
							Position string `json:"position"`
						}{now.String()})
					}
					return a.print(now.String() + "\n")
				}
				err := a.watch(cmd.Context(), c, p, opts, count)
				if err != nil && errors.Is(cmd.Context().Err(), context.Canceled) {
					return errSilent
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

func (a *app) watch(ctx context.Context, c *client.Client, prefix []byte, opts client.WatchOptions, count int) error {
	for e, err := range c.Watch(ctx, prefix, opts) {
		if err != nil {
			return err
		}
		if err := a.print(a.event(e)); err != nil {
			return err
		}
		if count--; count == 0 {
			return nil
		}
	}
	return nil
}

// event is one line.
func (a *app) event(e client.Event) string {
	if a.output == "json" {
		line := append([]byte(`{"op":`), strconv.Quote(e.Op.String())...)
		if !e.Skipped {
			r := record{Key: e.Key, Value: e.Value, HasValue: e.HasValue, Version: &e.Version}
			if e.Op == client.EventPut {
				r.Size = &e.Size
			}
			rest := appendRecord(nil, r)
			line = append(append(line, ','), rest[1:len(rest)-2]...)
		}
		if e.More {
			line = append(line, `,"more":true`...)
		}
		return string(line) + fmt.Sprintf(",\"position\":%q}\n", e.Position)
	}
	line := e.Op.String()
	if !e.Skipped {
		line += "\t" + a.show(e.Key)
	}
	if e.HasValue {
		line += "\t" + a.show(e.Value)
	}
	return line + "\n"
}
