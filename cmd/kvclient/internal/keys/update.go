package keys

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// parseTTL reads how long a key lives; 0 is for ever. Zero and negative times are
// refused: a key that is gone at once is no time to live but a delete.
func parseTTL(text string) (time.Duration, error) {
	if text == "never" || text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl <= 0 {
		return 0, errors.New(`want a time such as 90s, 15m or 1.5h, or "never"`)
	}
	return ttl, nil
}

// incrCmd is incr. The server adds, so that two callers at a time lose no step.
func incrCmd(a *app.App) *cobra.Command {
	var by int64
	cmd := &cobra.Command{
		Use:     "incr KEY",
		Aliases: []string{"increment"},
		Short:   "add to the number under a key, and print the sum",
		Long: `incr adds 1, or --by, to the decimal number under KEY and prints the sum. A key
that is not there counts as 0. It is done by the server in one step, once, also
where a reply was lost on the way.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				// A number that does not fit, and a value that is none, are errors
				// of the server, which alone sees the value.
				sum, err := c.Increment(cmd.Context(), key, by)
				switch {
				case err != nil:
					return err
				case a.Output == "json":
					return a.Print(string(appendRecord(nil, record{Key: key, Number: &sum})))
				}
				return a.Print(fmt.Sprintln(sum))
			})
		},
	}
	cmd.Flags().Int64Var(&by, "by", 1, "what to add; may be negative")
	return cmd
}

// touchCmd is touch, which changes when a key expires and nothing else: its value
// and what is in the memory of the server stay.
func touchCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:        "touch KEY TTL",
		SuggestFor: []string{"expire", "pexpire"},
		Short:      "give a key another time to live; exit code 3 if it is not there",
		Long: `touch has KEY expire TTL after the server has done it, whatever it had before.
TTL is a time such as 90s, 15m or 1.5h, or "never".`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			// "never" takes the expiry away: there is no command of its own for
			// that.
			ttl, err := parseTTL(args[1])
			if err != nil {
				return cli.Usagef("TTL %s: %v", cli.Quote([]byte(args[1])), err)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				err := c.Touch(cmd.Context(), key, ttl)
				if err != nil || a.Output != "json" {
					return err
				}
				return a.Print(string(appendRecord(nil, record{Key: key})))
			})
		},
	}
}
