package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) getCmd() *cobra.Command {
	var file string
	var offset, length int64
	var meta, version bool
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "print the value of a key",
		Long: `get prints the value alone, byte for byte, and a newline behind it only on a
terminal. With --offset or --length it reads that part of the value.

With --version it prints the version of the key in place of the value, for
put --if-version and delete --if-version; with --meta the version, the size of
the value in bytes and when the key expires (or never), with tabs in between.
With -o json and --meta there are all of them and the value.`,
		Args:              cobra.ExactArgs(1),
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
					return err
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

// getMeta prints what there is of a key beside its value.
func (a *app) getMeta(ctx context.Context, c *client.Client, key []byte, all bool) error {
	if a.output == "json" && all {
		item, err := c.GetItem(ctx, key)
		if err != nil {
			return err
		}
		size := int64(len(item.Value))
		return a.print(string(appendRecord(nil, record{
			Key: key, Value: item.Value, HasValue: true, Size: &size, Version: &item.Version, Expires: item.Expiry,
		})))
	}
	info, err := c.Stat(ctx, key)
	switch {
	case err != nil:
		return err
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
		Use:   "put KEY [VALUE]",
		Short: "store a value under a key",
		Long: `put stores VALUE under KEY and returns when the server has acknowledged it.
Without VALUE the value is read from --file, else from standard input; both are
taken byte for byte, also with --hex.

With --if-absent or --if-version it stores the value only if that holds, and
else ends with exit code 1. With --ttl the key expires so long after the server
has stored it. With -o json it prints the version that the key then has.`,
		Args: cobra.RangeArgs(1, 2),
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

func (a *app) deleteCmd() *cobra.Command {
	var version uint64
	cmd := &cobra.Command{
		Use:               "delete KEY",
		Aliases:           []string{"del"},
		Short:             "delete a key; exit code 3 if it was not there",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			conditional := cmd.Flags().Changed("if-version")
			if conditional && version == 0 {
				return usagef("--if-version is 0, which no key has")
			}
			return a.withClient(cmd.Context(), func(c *client.Client) (err error) {
				existed := true
				if conditional {
					if err = c.DeleteIf(cmd.Context(), key, version); errors.Is(err, client.ErrNotFound) {
						existed, err = false, nil
					}
				} else {
					existed, err = c.Delete(cmd.Context(), key)
				}
				if err != nil {
					return err
				}
				if a.output == "json" {
					err = a.print(string(appendRecord(nil, record{Key: key, Existed: &existed})))
				}
				return errors.Join(err, a.absent(key, existed))
			})
		},
	}
	cmd.Flags().Uint64Var(&version, "if-version", 0, "only if the key has this version; exit code 1 if it has another")
	return cmd
}

func (a *app) existsCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "exists KEY",
		Short:             "print true or false; exit code 3 if the key is not there",
		Args:              cobra.ExactArgs(1),
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

// absent says that a key was not there, and ends the command so.
func (a *app) absent(key []byte, there bool) error {
	if there {
		return nil
	}
	return fmt.Errorf("%s: %w", quote(key), client.ErrNotFound)
}

func (a *app) scanCmd() *cobra.Command {
	var prefix, after, start, end string
	var limit int
	var values, keysOnly bool
	cmd := &cobra.Command{
		Use:   "scan",
		Short: "list keys in byte order",
		Long: `scan prints one key a line. Keys that are not plain text are printed quoted, or
all in hexadecimal with --hex. With -o json each line is an object with the key,
the size of its value, its version and when it expires. A scan that was ended by
--limit goes on with --after and the last key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.bytes("--prefix", prefix)
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
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Flags().StringVar(&after, "after", "", "only keys behind this one")
	cmd.Flags().StringVar(&start, "start", "", "only keys from this one on")
	cmd.Flags().StringVar(&end, "end", "", "only keys before this one")
	cmd.Flags().BoolVar(&keysOnly, "keys-only", false, "no values, which is also the default")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many keys; 0 means all")
	cmd.Flags().BoolVar(&values, "values", false, "values too: behind a tab, or in the JSON object")
	return cmd
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
