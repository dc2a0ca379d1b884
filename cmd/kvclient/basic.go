package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) getCmd() *cobra.Command {
	var file string
	var offset, length int64
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "print the value of a key",
		Long: `get prints the value alone, byte for byte, and a newline behind it only on a
terminal. With --offset or --length it reads that part of the value.`,
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
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				var value []byte
				var err error
				if cmd.Flags().Changed("offset") || cmd.Flags().Changed("length") {
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
	return cmd
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
	var file string
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "store a value under a key",
		Long: `put stores VALUE under KEY and returns when the server has acknowledged it.
Without VALUE the value is read from --file, else from standard input; both are
taken byte for byte, also with --hex.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			var value []byte
			switch {
			case len(args) == 2 && file != "":
				return usagef("both VALUE and --file are given")
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
				return c.Put(cmd.Context(), key, value)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the value from this file, - for standard input")
	return cmd
}

func (a *app) deleteCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "delete KEY",
		Short:             "delete a key; exit code 3 if it was not there",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				existed, err := c.Delete(cmd.Context(), key)
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
	var prefix, after string
	var limit int
	var values bool
	cmd := &cobra.Command{
		Use:   "scan",
		Short: "list keys in byte order",
		Long: `scan prints one key a line. Keys that are not plain text are printed quoted, or
all in hexadecimal with --hex. With -o json each line is an object with the key,
the size of its value and its version.`,
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
			if limit < 0 {
				return usagef("--limit is %d, want 0 (all) or more", limit)
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				opt := client.ScanOptions{Prefix: p, After: from, Limit: limit, KeysOnly: !values}
				return a.scan(cmd.Context(), c, opt)
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Flags().StringVar(&after, "after", "", "only keys behind this one")
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
			r := record{Key: e.Key, Value: e.Value, HasValue: !opt.KeysOnly, Size: &e.Size, Version: &e.Version}
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
