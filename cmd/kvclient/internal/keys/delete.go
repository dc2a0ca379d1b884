package keys

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// deleteCmd is delete, of keys that are named or of all that begin with a prefix.
// The two share a name because users expect it, and little else: the first is exact
// and says of each key whether it was there, the second asks before it begins.
func deleteCmd(a *app.App) *cobra.Command {
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
			// KEY may be missing where --prefix is there, which the usage line
			// cannot say: so the number of arguments is checked here.
			conditional := cmd.Flags().Changed("if-version")
			if cmd.Flags().Changed("prefix") {
				return deletePrefix(cmd.Context(), a, args, prefix, conditional, yes)
			}
			switch {
			case len(args) == 0:
				return cli.Usagef("delete: KEY is missing (usage: kvclient delete KEY... [flags], or --prefix PREFIX)")
			case yes:
				return cli.Usagef("--yes goes with --prefix")
			case conditional && version == 0:
				return cli.Usagef("--if-version is 0, which no key has")
			case conditional && len(args) > 1:
				return cli.Usagef("--if-version goes with one KEY")
			}
			keys, err := a.Keys(args)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				return deleteKeys(cmd.Context(), a, c, keys, version)
			})
		},
	}
	cmd.Flags().Uint64Var(&version, "if-version", 0, "only if the key has this version; exit code 1 if it has another")
	cmd.Flags().StringVar(&prefix, "prefix", "", "delete all keys that begin so")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "--prefix: do not ask")
	return cmd
}

// deleteKeys deletes some keys side by side, so that those of a node that is away
// are waited for once and not one after the other. The outcome of each is printed
// in the order of the arguments, when all are done.
func deleteKeys(ctx context.Context, a *app.App, c *client.Client, keys [][]byte, version uint64) error {
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
	failed := app.KeysErrors{}
	// This is a second loop, after all have ended, so that the lines are in the
	// order of the arguments.
	for i, key := range keys {
		if errs[i] != nil {
			failed = a.AddFailed(failed, key, errs[i])
			continue
		}
		if a.Output == "json" {
			if err := a.Print(string(appendRecord(nil, record{Key: key, Existed: &existed[i]}))); err != nil {
				return err
			}
		}
		if err := absent(key, existed[i]); err != nil {
			missing = append(missing, err)
		}
	}
	switch {
	case len(failed) == 0:
		return errors.Join(missing...)
	case len(keys) == 1:
		return errs[0] // its text names the key already
	}
	return missingAnd(a, missing, failed)
}

// deleteOne deletes a key and tells whether it was there; version 0 means any
// version.
func deleteOne(ctx context.Context, c *client.Client, key []byte, version uint64) (existed bool, err error) {
	if version == 0 {
		return c.Delete(ctx, key)
	}
	// That a key is not there is the answer "no" here, as for Delete, and no
	// failure.
	if err = c.DeleteIf(ctx, key, version); errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	return true, err
}

const (
	// deleteWorkers are the deletes under way at a time: enough for the server to
	// make many durable with one sync.
	deleteWorkers = 64
	// askedAbout bounds the keys that are counted before the question: a person
	// only has to know whether it is about three keys or about thousands.
	askedAbout = 1000
)

// deletePrefix deletes the keys that begin with a prefix. It asks first on a
// terminal and demands --yes elsewhere, because a prefix that is too short takes
// more than was meant, and there is no way back. An empty prefix would be
// everything, and is refused even with --yes.
func deletePrefix(ctx context.Context, a *app.App, args []string, prefix string, conditional, yes bool) error {
	p, err := a.Bytes("--prefix", prefix)
	switch {
	case err != nil:
		return err
	case len(args) > 0:
		return cli.Usagef("both KEY and --prefix are given")
	case conditional:
		return cli.Usagef("--if-version and --prefix exclude each other")
	case len(p) == 0:
		return cli.Usagef("--prefix is empty: want the beginning of the keys to delete")
	case !yes:
		if err := a.MayAsk("delete --prefix", "deletes"); err != nil {
			return err
		}
	}
	return a.WithClient(ctx, func(c *client.Client) error {
		if !yes {
			n, err := countKeys(ctx, c, p, askedAbout)
			if err != nil {
				return err
			}
			if n == 0 { // there is nothing to ask about
				return absent(p, false)
			}
			if !a.Confirm(ctx, fmt.Sprintf("delete %s that begin with %s?", keyCount(n), cli.Quote(p))) {
				return errors.New("nothing was deleted")
			}
		}
		show := app.NewProgress(a.Stderr, "deleted", 0, nil)
		show.Bytes.Store(-1) // keys have no bytes to show here
		err := deleteAll(ctx, c, p, show)
		a.Finish(show, err)
		if a.Output == "json" {
			err = errors.Join(err, a.PrintJSON(struct {
				Deleted int64   `json:"deleted"`
				Seconds float64 `json:"seconds"`
			}{show.Keys.Load(), time.Since(show.Begun).Seconds()}))
		}
		// Another client may have deleted them between the question and now.
		if err == nil && show.Keys.Load() == 0 {
			return app.ErrNotFound // the last line of the progress has said it
		}
		return err
	})
}

// keyCount says how many keys the question is about.
func keyCount(n int64) string {
	switch {
	case n == 1:
		return "the one key"
	case n >= askedAbout:
		return "at least " + cli.Thousands(n) + " keys"
	}
	return "all " + cli.Thousands(n) + " keys"
}

// deleteAll scans and deletes side by side, so that memory stays bounded however
// many keys there are: at most deleteWorkers keys are under way and as many wait.
// The first error ends it. Workers go on to take keys from the channel after an
// error, and drop them: else the scan would wait forever for a place in it.
func deleteAll(ctx context.Context, c *client.Client, prefix []byte, show *app.Progress) error {
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
					show.Keys.Add(1)
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
