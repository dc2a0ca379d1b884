package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) deleteCmd() *cobra.Command {
	var version uint64
	var prefix string
	var yes bool
	cmd := &cobra.Command{
		Use:        "delete [KEY...]",
		Aliases:    []string{"del"},
		SuggestFor: []string{"rm", "remove", "unset", "unlink", "purge"},
		Short:      "delete keys; exit code 3 if one was not there",
		Long: `delete deletes each KEY, and ends with exit code 3 if one of them was not there.
Where one cannot be deleted the others are; it is named, and the exit code is 1.

With --prefix it deletes all keys that begin so. It asks before that, unless --yes
is given. A key that is written meanwhile may stay; what was deleted before an
error or Ctrl-C is gone, and the same command does the rest.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			conditional := cmd.Flags().Changed("if-version")
			if cmd.Flags().Changed("prefix") {
				return a.deletePrefix(cmd.Context(), args, prefix, conditional, yes)
			}
			switch {
			case len(args) == 0:
				return usagef("delete: KEY is missing (usage: kvclient delete KEY... [flags], or --prefix PREFIX)")
			case yes:
				return usagef("--yes goes with --prefix")
			case conditional && version == 0:
				return usagef("--if-version is 0, which no key has")
			case conditional && len(args) > 1:
				return usagef("--if-version goes with one KEY")
			}
			keys, err := a.keys(args)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				return a.deleteKeys(cmd.Context(), c, keys, version)
			})
		},
	}
	cmd.Flags().Uint64Var(&version, "if-version", 0, "only if the key has this version; exit code 1 if it has another")
	cmd.Flags().StringVar(&prefix, "prefix", "", "delete all keys that begin so")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "--prefix: do not ask")
	return cmd
}

// deleteKeys deletes some keys, side by side, so that those of a node that is away
// are waited for once and not one after the other.
func (a *app) deleteKeys(ctx context.Context, c *client.Client, keys [][]byte, version uint64) error {
	existed, errs := make([]bool, len(keys)), make([]error, len(keys))
	room := make(chan struct{}, deleteWorkers)
	var wg sync.WaitGroup
	for i, key := range keys {
		room <- struct{}{}
		wg.Go(func() {
			existed[i], errs[i] = deleteOne(ctx, c, key, version)
			<-room
		})
	}
	wg.Wait()
	var missing []error
	failed := keysErrors{}
	for i, key := range keys {
		if errs[i] != nil {
			failed = a.addFailed(failed, key, errs[i])
			continue
		}
		if a.output == "json" {
			if err := a.print(string(appendRecord(nil, record{Key: key, Existed: &existed[i]}))); err != nil {
				return err
			}
		}
		if err := a.absent(key, existed[i]); err != nil {
			missing = append(missing, err)
		}
	}
	switch {
	case len(failed) == 0:
		return errors.Join(missing...)
	case len(keys) == 1:
		return errs[0]
	}
	return a.missingAnd(missing, failed)
}

// keys reads KEY arguments.
func (a *app) keys(args []string) ([][]byte, error) {
	keys := make([][]byte, len(args))
	for i, arg := range args {
		var err error
		if keys[i], err = a.key(arg); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// deleteOne deletes a key; version 0 means whichever it has.
func deleteOne(ctx context.Context, c *client.Client, key []byte, version uint64) (existed bool, err error) {
	if version == 0 {
		return c.Delete(ctx, key)
	}
	if err = c.DeleteIf(ctx, key, version); errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	return true, err
}

// absent says that a key was not there.
func (a *app) absent(key []byte, there bool) error {
	if there {
		return nil
	}
	return fmt.Errorf("%s: %w", quote(key), client.ErrNotFound)
}

const (
	deleteWorkers = 64   // deletes under way at a time
	askedAbout    = 1000 // keys that are counted before the question; more are "at least" so many
)

// deletePrefix deletes what begins with a prefix, after it has asked.
func (a *app) deletePrefix(ctx context.Context, args []string, prefix string, conditional, yes bool) error {
	p, err := a.bytes("--prefix", prefix)
	switch {
	case err != nil:
		return err
	case len(args) > 0:
		return usagef("both KEY and --prefix are given")
	case conditional:
		return usagef("--if-version and --prefix exclude each other")
	case len(p) == 0:
		return usagef("--prefix is empty: want the beginning of the keys to delete")
	case !yes && !isTerminal(a.stdin):
		return usagef("delete --prefix asks before it deletes, and standard input is no terminal: say --yes")
	}
	return a.withClient(ctx, func(c *client.Client) error {
		if !yes {
			n, err := countKeys(ctx, c, p, askedAbout)
			if err != nil {
				return err
			}
			if n == 0 {
				return a.absent(p, false)
			}
			if !a.confirm(fmt.Sprintf("delete %s that begin with %s?", keyCount(n), quote(p))) {
				return errors.New("nothing was deleted")
			}
		}
		show := newProgress(a.stderr, "deleted", 0, nil)
		show.bytes.Store(-1)
		err := deleteAll(ctx, c, p, show)
		a.finish(show, err)
		if a.output == "json" {
			err = errors.Join(err, a.printJSON(struct {
				Deleted int64   `json:"deleted"`
				Seconds float64 `json:"seconds"`
			}{show.keys.Load(), time.Since(show.start).Seconds()}))
		}
		if err == nil && show.keys.Load() == 0 {
			return errNotFound // the last line of the progress has said it
		}
		return err
	})
}

func keyCount(n int64) string {
	switch {
	case n == 1:
		return "the one key"
	case n >= askedAbout:
		return "at least " + thousands(n) + " keys"
	}
	return "all " + thousands(n) + " keys"
}

// confirm asks on the terminal; whatever is no clear yes is a no.
func (a *app) confirm(question string) bool {
	fmt.Fprintf(a.stderr, "kvclient: %s [y/N] ", question)
	line, _ := bufio.NewReader(a.stdin).ReadString('\n')
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// deleteAll scans and deletes side by side: at most deleteWorkers keys are under
// way and as many wait, however many there are. The first error ends it.
func deleteAll(ctx context.Context, c *client.Client, prefix []byte, show *progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := make(chan []byte, deleteWorkers)
	var wg sync.WaitGroup
	for range deleteWorkers {
		wg.Go(func() {
			for key := range keys {
				if ctx.Err() != nil {
					continue
				}
				existed, err := c.Delete(ctx, key)
				if err != nil {
					cancel(err)
				} else if existed {
					show.keys.Add(1)
				}
			}
		})
	}
	var failed error
	for e, err := range c.Scan(ctx, client.ScanOptions{Prefix: prefix, KeysOnly: true}) {
		if err != nil {
			failed = err
			break
		}
		keys <- e.Key
	}
	close(keys)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return failed
}
