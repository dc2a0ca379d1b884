package keys

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// getCmd is get. One key and several are two commands in one: the value of one key
// is printed as it is, so that a pipe gets its bytes and nothing else; of several
// keys each needs a line of its own, in which any bytes must be harmless.
func getCmd(a *app.App) *cobra.Command {
	var file string
	var offset, length int64
	var meta, version bool
	var bound time.Duration
	cmd := &cobra.Command{
		Use:        "get KEY...",
		SuggestFor: []string{"mget", "read", "cat"},
		Short:      "print the value of a key, or of several",
		Long: `get prints the value alone, byte for byte, and a newline behind it only on a
terminal. With --offset or --length it reads that part of the value.

Of several keys it prints one line each: the key, a tab and the value, both as scan
prints them. A key that is not there is named on standard error, and the exit code
is then 3; with -o json its line has "exists":false. Keys whose node is away are named
there, too; the others are printed, and the exit code is 1.

With --version it prints the version of the key in place of the value, for
put --if-version and delete --if-version; with --meta the version, the size of
the value in bytes and when the key expires (or never), with tabs in between.
With -o json and --meta there are all of them and the value.

With --bounded D answers may be as old as D, and are READ at any replica of their
keys, not only at those that lead.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			if offset < 0 || length < -1 {
				return cli.Usagef("--offset and --length must not be negative")
			}
			// Whether a flag was given counts, not its value: --offset 0 asks for a
			// part, which is printed as a part would be.
			part := cmd.Flags().Changed("offset") || cmd.Flags().Changed("length")
			if meta && version || (meta || version) && (part || file != "") {
				return cli.Usagef("--meta and --version exclude each other, --offset, --length and --file")
			}
			var opts []client.ReadOption
			if cmd.Flags().Changed("bounded") {
				if bound <= 0 {
					return cli.Usagef("--bounded must be above 0, such as 100ms")
				}
				opts = append(opts, client.ReadBounded(bound))
			}
			// What these flags print would have no place on the line of a key.
			if len(args) > 1 {
				if part || meta || version || file != "" {
					return cli.Usagef("--offset, --length, --meta, --version and --file go with one KEY")
				}
				return getSeveral(cmd.Context(), a, args, opts)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				// The value is left out: it may be large, and the user did not ask
				// for it.
				if meta || version {
					return getMeta(cmd.Context(), a, c, key, meta, opts)
				}
				// A whole value may be large: see streamed.go, and of a file buffered.go.
				if !part && a.Output != "json" && !a.Hex && opts == nil {
					if done, err := getStream(cmd.Context(), a, c, key, file); done || err != nil {
						return notThere(a, key, err)
					}
				}
				if file != "" && !part && opts == nil {
					return getFile(cmd.Context(), c, key, func(value []byte) error { return putOut(a, key, value, file) })
				}
				var value []byte
				var err error
				if part {
					if length < 0 { // to the end, wherever that is
						length = math.MaxInt64
					}
					value, err = c.GetRange(cmd.Context(), key, offset, length, opts...)
				} else {
					value, err = c.Get(cmd.Context(), key, opts...)
				}
				if err != nil {
					return notThere(a, key, err)
				}
				return putOut(a, key, value, file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write the value to this file")
	cmd.Flags().Int64Var(&offset, "offset", 0, "first byte to read")
	cmd.Flags().Int64Var(&length, "length", -1, "bytes to read; -1 means to the end")
	cmd.Flags().DurationVar(&bound, "bounded", 0, "the answer may be so old, such as 100ms")
	cmd.Flags().BoolVar(&meta, "meta", false, "print version, size and expiry")
	cmd.Flags().BoolVar(&version, "version", false, "print the version")
	return cmd
}

// getSeveral prints a line for each key that is there.
func getSeveral(ctx context.Context, a *app.App, args []string, opts []client.ReadOption) error {
	keys, err := a.Keys(args)
	if err != nil {
		return err
	}
	return a.WithClient(ctx, func(c *client.Client) error { return getKeys(ctx, a, c, keys, opts) })
}

// getKeys asks for all keys in one call of the library, so that a thousand keys
// cost a few round trips and not a thousand. Lines come in the order of the
// arguments. Every key that was got is printed before anything is said of those
// that failed.
func getKeys(ctx context.Context, a *app.App, c *client.Client, keys [][]byte, opts []client.ReadOption) error {
	results, why := c.MultiGet(ctx, keys, opts...)
	var missing []error
	var failed app.KeysErrors
	for i, r := range results {
		line, there := "", r.Err == nil
		switch {
		// A key that is not there is an answer; everything else is none.
		case r.Err != nil && !errors.Is(r.Err, client.ErrNotFound):
			failed = a.AddFailed(failed, keys[i], r.Err)
			continue
		case a.Output == "json" && !there:
			line = string(appendRecord(nil, record{Key: keys[i], Exists: &there}))
		case a.Output == "json":
			line = string(appendRecord(nil, record{Key: keys[i], Value: r.Value, HasValue: true}))
		case there:
			line = a.Show(keys[i]) + "\t" + a.Show(r.Value) + "\n"
		}
		if err := a.Print(line); err != nil {
			return err
		}
		if err := absent(keys[i], there); err != nil {
			missing = append(missing, err)
		}
	}
	if len(failed) > 0 {
		return missingAnd(a, missing, failed)
	}
	// why is an error of the call as a whole, which belongs to no single key.
	return cmp.Or(why, errors.Join(missing...))
}

// getMeta prints what there is of a key beside its value: all of it, or the version
// alone, which is what put --if-version and delete --if-version take. Only JSON has
// room for the value beside it; then one call gets both, so that they belong to the
// same write.
func getMeta(ctx context.Context, a *app.App, c *client.Client, key []byte, all bool, opts []client.ReadOption) error {
	if a.Output == "json" && all {
		item, err := c.GetItem(ctx, key, opts...)
		if err != nil {
			return notThere(a, key, err)
		}
		size := int64(len(item.Value))
		return a.Print(string(appendRecord(nil, record{
			Key: key, Value: item.Value, HasValue: true, Size: &size, Version: &item.Version, Expires: item.Expiry,
		})))
	}
	info, err := c.Stat(ctx, key, opts...)
	switch {
	case err != nil:
		return notThere(a, key, err)
	case a.Output == "json":
		return a.Print(string(appendRecord(nil, record{Key: key, Version: &info.Version})))
	case !all:
		return a.Print(fmt.Sprintln(info.Version))
	}
	// Tabs, so that cut and awk find the fields; a time that sorts as text.
	expires := "never"
	if !info.Expiry.IsZero() {
		expires = info.Expiry.UTC().Format(time.RFC3339Nano)
	}
	return a.Print(fmt.Sprintf("%d\t%d\t%s\n", info.Version, info.Size, expires))
}

// notThere prints what JSON has for a key that is not there, and returns err, the
// reason why nothing was got. A script that reads lines of JSON gets one for every
// key that it has named.
func notThere(a *app.App, key []byte, err error) error {
	if a.Output != "json" || !errors.Is(err, client.ErrNotFound) {
		return err
	}
	there := false
	if bad := a.Print(string(appendRecord(nil, record{Key: key, Exists: &there}))); bad != nil {
		return bad
	}
	return err
}

// putOut writes a value to where the user told get to write it. A newline behind it
// is for a terminal, where the prompt would follow the value; in a pipe or a file
// it would be a byte too many.
func putOut(a *app.App, key, value []byte, file string) error {
	switch {
	case file != "" && file != "-":
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", cli.Quote([]byte(file)), cli.Cause(err))
		}
		return nil // and nothing on standard output: the file is the output
	case a.Output == "json":
		return a.Print(string(appendRecord(nil, record{Key: key, Value: value, HasValue: true})))
	case a.Hex:
		return a.Print(hex.EncodeToString(value) + "\n")
	case cli.IsTerminal(a.Stdout):
		return a.Print(string(value) + "\n")
	}
	return a.Print(string(value))
}

// existsCmd is exists. Its answer is printed and is the exit code, too: a shell's
// "if" reads the one, a person the other.
func existsCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:               "exists KEY",
		SuggestFor:        []string{"has", "contains"},
		Short:             "print true or false; exit code 3 if the key is not there",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				found, err := c.Exists(cmd.Context(), key)
				if err != nil {
					return err
				}
				if a.Output == "json" {
					err = a.Print(string(appendRecord(nil, record{Key: key, Exists: &found})))
				} else {
					err = a.Print(fmt.Sprintln(found))
				}
				if err == nil && !found {
					return app.ErrNotFound // "false" has been printed, which says it
				}
				return err
			})
		},
	}
}

// ttlCmd is ttl. The time that is left is computed by the clock of this machine,
// because the server tells when the key expires: a clock that is wrong here shows a
// wrong rest, and changes nothing of when the key goes.
func ttlCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:        "ttl KEY",
		SuggestFor: []string{"pttl", "expiry"},
		Short:      "print how long a key has to live; exit code 3 if it is not there",
		Long: `ttl prints the time that KEY has to live, such as 14m59s, by the clock of this
machine, or never. With -o json it prints the seconds, and when it expires. touch
gives a key another time to live.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				info, err := c.Stat(cmd.Context(), key)
				if err != nil {
					return notThere(a, key, err)
				}
				// A key that is just due is still there until the server has
				// deleted it.
				left := max(time.Until(info.Expiry), 0)
				if a.Output == "json" {
					// ttl_seconds is of this command alone, so the record does not
					// have it; the object is opened again at its end.
					line := strings.TrimSuffix(string(appendRecord(nil, record{Key: key, Expires: info.Expiry})), "}\n")
					if info.Expiry.IsZero() {
						return a.Print(line + ",\"ttl_seconds\":null}\n")
					}
					return a.Print(fmt.Sprintf("%s,\"ttl_seconds\":%.3f}\n", line, left.Seconds()))
				}
				if info.Expiry.IsZero() {
					return a.Print("never\n")
				}
				return a.Print(left.Round(time.Millisecond).String() + "\n")
			})
		},
	}
}
