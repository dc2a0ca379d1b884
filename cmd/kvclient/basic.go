package main

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
)

func (a *app) getCmd() *cobra.Command {
	var file string
	var offset, length int64
	var meta, version bool
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
With -o json and --meta there are all of them and the value.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			if offset < 0 || length < -1 {
				return usagef("--offset and --length must not be negative")
			}
			part := cmd.Flags().Changed("offset") || cmd.Flags().Changed("length")
			if meta && version || (meta || version) && (part || file != "") {
				return usagef("--meta and --version exclude each other, --offset, --length and --file")
			}
			if len(args) > 1 {
				if part || meta || version || file != "" {
					return usagef("--offset, --length, --meta, --version and --file go with one KEY")
				}
				return a.getSeveral(cmd.Context(), args)
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if meta || version {
					return a.getMeta(cmd.Context(), c, key, meta)
				}
				if file != "" && !part {
					return getFile(cmd.Context(), c, key, func(value []byte) error { return a.putOut(key, value, file) })
				}
				var value []byte
				var err error
				if part {
					if length < 0 {
						length = math.MaxInt64
					}
					value, err = c.GetRange(cmd.Context(), key, offset, length)
				} else {
					value, err = c.Get(cmd.Context(), key)
				}
				if err != nil {
					return a.notThere(key, err)
				}
				return a.putOut(key, value, file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "write the value to this file")
	cmd.Flags().Int64Var(&offset, "offset", 0, "first byte to read")
	cmd.Flags().Int64Var(&length, "length", -1, "bytes to read; -1 means to the end")
	cmd.Flags().BoolVar(&meta, "meta", false, "print version, size and expiry")
	cmd.Flags().BoolVar(&version, "version", false, "print the version")
	return cmd
}

// getSeveral prints a line for each key that is there.
func (a *app) getSeveral(ctx context.Context, args []string) error {
	keys, err := a.keys(args)
	if err != nil {
		return err
	}
	return a.withClient(ctx, func(c *client.Client) error { return a.getKeys(ctx, c, keys) })
}

func (a *app) getKeys(ctx context.Context, c *client.Client, keys [][]byte) error {
	results, why := c.MultiGet(ctx, keys)
	var missing []error
	var failed keysErrors
	for i, r := range results {
		line, there := "", r.Err == nil
		switch {
		case r.Err != nil && !errors.Is(r.Err, client.ErrNotFound):
			failed = a.addFailed(failed, keys[i], r.Err)
			continue
		case a.output == "json" && !there:
			line = string(appendRecord(nil, record{Key: keys[i], Exists: &there}))
		case a.output == "json":
			line = string(appendRecord(nil, record{Key: keys[i], Value: r.Value, HasValue: true}))
		case there:
			line = a.show(keys[i]) + "\t" + a.show(r.Value) + "\n"
		}
		if err := a.print(line); err != nil {
			return err
		}
		if err := a.absent(keys[i], there); err != nil {
			missing = append(missing, err)
		}
	}
	if len(failed) > 0 {
		return a.missingAnd(missing, failed)
	}
	return cmp.Or(why, errors.Join(missing...))
}

// getMeta prints what there is of a key beside its value.
func (a *app) getMeta(ctx context.Context, c *client.Client, key []byte, all bool) error {
	if a.output == "json" && all {
		item, err := c.GetItem(ctx, key)
		if err != nil {
			return a.notThere(key, err)
		}
		size := int64(len(item.Value))
		return a.print(string(appendRecord(nil, record{
			Key: key, Value: item.Value, HasValue: true, Size: &size, Version: &item.Version, Expires: item.Expiry,
		})))
	}
	info, err := c.Stat(ctx, key)
	switch {
	case err != nil:
		return a.notThere(key, err)
	case a.output == "json":
		return a.print(string(appendRecord(nil, record{Key: key, Version: &info.Version})))
	case !all:
		return a.print(fmt.Sprintln(info.Version))
	}
	expires := "never"
	if !info.Expiry.IsZero() {
		expires = info.Expiry.UTC().Format(time.RFC3339Nano)
	}
	return a.print(fmt.Sprintf("%d\t%d\t%s\n", info.Version, info.Size, expires))
}

// notThere prints what JSON has for a key that is not there, and returns err.
func (a *app) notThere(key []byte, err error) error {
	if a.output != "json" || !errors.Is(err, client.ErrNotFound) {
		return err
	}
	there := false
	if bad := a.print(string(appendRecord(nil, record{Key: key, Exists: &there}))); bad != nil {
		return bad
	}
	return err
}

// putOut writes a value where get was told to.
func (a *app) putOut(key, value []byte, file string) error {
	switch {
	case file != "" && file != "-":
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", quote([]byte(file)), cause(err))
		}
		return nil
	case a.output == "json":
		return a.print(string(appendRecord(nil, record{Key: key, Value: value, HasValue: true})))
	case a.hex:
		return a.print(hex.EncodeToString(value) + "\n")
	case isTerminal(a.stdout):
		return a.print(string(value) + "\n")
	}
	return a.print(string(value))
}

func (a *app) putCmd() *cobra.Command {
	var file, ttl string
	var opts client.PutOptions
	cmd := &cobra.Command{
		Use:        "put KEY [VALUE]",
		SuggestFor: []string{"set", "write", "mset", "setex", "store"},
		Short:      "store a value under a key",
		Long: `put stores VALUE under KEY and returns when the server has acknowledged it.
Without VALUE the value is read from --file, else from standard input; both are
taken byte for byte, also with --hex. An empty value is put KEY ''; a standard input
that is closed, or /dev/null as a program without input is given it, is refused.

With --if-absent or --if-version it stores the value only if that holds, and
else ends with exit code 1. With --ttl the key expires so long after the server
has stored it. With -o json it prints the version that the key then has.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			if opts.TTL, err = parseTTL(ttl); err != nil {
				return usagef("--ttl %s: %v", quote([]byte(ttl)), err)
			}
			if opts.IfAbsent && opts.IfVersion != 0 {
				return usagef("--if-absent and --if-version exclude each other")
			}
			if cmd.Flags().Changed("if-version") && opts.IfVersion == 0 {
				return usagef("--if-version is 0, which no key has; --if-absent asks for a key that does not exist")
			}
			var value []byte
			var large *os.File
			var size int
			if file != "" && file != "-" {
				if large, size, err = openLarge(file); err != nil {
					return err
				}
				if large != nil {
					defer large.Close()
				}
			}
			switch {
			case len(args) == 2 && file != "":
				return usagef("both VALUE and --file are given")
			case large != nil: // it is read once there is memory for it
			case len(args) == 2:
				value, err = a.bytes("VALUE", args[1])
			case file != "":
				value, err = a.readFile(file)
			case neverOpen(a.stdin):
				return usagef("put: standard input is closed or /dev/null, and VALUE is missing; an empty value is: put KEY ''")
			default:
				if isTerminal(a.stdin) {
					fmt.Fprintln(a.stderr, "kvclient: reading the value from the terminal, end it with Ctrl-D")
				}
				value, err = a.readFile("-")
			}
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				put := func() (uint64, error) { return c.PutWith(cmd.Context(), key, value, opts) }
				if large != nil {
					put = func() (uint64, error) { return putFile(cmd.Context(), c, key, large, size, opts) }
				}
				version, err := put()
				if err != nil || a.output != "json" {
					return err
				}
				return a.print(string(appendRecord(nil, record{Key: key, Version: &version})))
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the value from this file, - for standard input")
	cmd.Flags().BoolVar(&opts.IfAbsent, "if-absent", false, "only if the key does not exist")
	cmd.Flags().Uint64Var(&opts.IfVersion, "if-version", 0, "only if the key has this version")
	cmd.Flags().StringVar(&ttl, "ttl", "never", "how long the key lives: 90s, 1.5h, …, never")
	return cmd
}

func (a *app) existsCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "exists KEY",
		SuggestFor:        []string{"has", "contains"},
		Short:             "print true or false; exit code 3 if the key is not there",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				found, err := c.Exists(cmd.Context(), key)
				if err != nil {
					return err
				}
				if a.output == "json" {
					err = a.print(string(appendRecord(nil, record{Key: key, Exists: &found})))
				} else {
					err = a.print(fmt.Sprintln(found))
				}
				if err == nil && !found {
					return errNotFound
				}
				return err
			})
		},
	}
}

func (a *app) ttlCmd() *cobra.Command {
	return &cobra.Command{
		Use:        "ttl KEY",
		SuggestFor: []string{"pttl", "expiry"},
		Short:      "print how long a key has to live; exit code 3 if it is not there",
		Long: `ttl prints the time that KEY has to live, such as 14m59s, by the clock of this
machine, or never. With -o json it prints the seconds, and when it expires. touch
gives a key another time to live.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				info, err := c.Stat(cmd.Context(), key)
				if err != nil {
					return a.notThere(key, err)
				}
				left := max(time.Until(info.Expiry), 0)
				if a.output == "json" {
					line := strings.TrimSuffix(string(appendRecord(nil, record{Key: key, Expires: info.Expiry})), "}\n")
					if info.Expiry.IsZero() {
						return a.print(line + ",\"ttl_seconds\":null}\n")
					}
					return a.print(fmt.Sprintf("%s,\"ttl_seconds\":%.3f}\n", line, left.Seconds()))
				}
				if info.Expiry.IsZero() {
					return a.print("never\n")
				}
				return a.print(left.Round(time.Millisecond).String() + "\n")
			})
		},
	}
}
