package main

import (
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/inspect"
)

// backupCmd is backup. It works on a store that a server serves as well: package
// inspect asks the server then, by the socket in the data directory, to make the
// copy consistent. If there are spaces of tenants the user has to say whether they
// are meant, because a backup that leaves some keys out must not look complete.
func (a *app) backupCmd() *cobra.Command {
	var all, mainOnly bool
	cmd := &cobra.Command{
		Use:   "backup DEST",
		Short: "copy the store to a new directory, while a server serves it or not",
		Long: `backup copies the store in --data-dir to DEST, which must not exist or be empty,
and verifies the copy. If a server runs on the store it goes on serving: the copy
is one state of it, with everything that was acknowledged before. The command
must run as the server's user, on its machine. Exit code 1 if it fails.

The spaces of tenants are stores of their own. Where there are any, say --all to
copy them too (each is one state, not all of them together), or --main-only.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Undecided is refused by package inspect where there are spaces to
			// decide about.
			scope := inspect.Undecided
			switch {
			case all:
				scope = inspect.All
			case mainOnly:
				scope = inspect.MainOnly
			}
			return inspect.Backup(cmd.Context(), a.stderr, a.cfg.DataDir, args[0], scope)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "the spaces of tenants too")
	cmd.Flags().BoolVar(&mainOnly, "main-only", false, "the node's own keys only")
	cmd.MarkFlagsMutuallyExclusive("all", "main-only")
	return cmd
}

// restoreCmd is restore. The new store has an id of its own: two stores of one id
// in a cluster would be one node twice.
func (a *app) restoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "restore SRC",
		Short: "make a new store out of a backup",
		Long: `restore verifies the backup in SRC and makes a store of it in --data-dir, which
must not exist or be empty. The new store has an id of its own; versions of keys
stay. The spaces of tenants that the backup has are restored with it. Start a
server on it as usual.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspect.Restore(cmd.Context(), a.stderr, args[0], a.cfg.DataDir)
		},
	}
}

// checkCmd is check, of a store or a backup. It takes a directory, because a backup
// is not where the configuration says that the store is.
func (a *app) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [DIR]",
		Short: "verify a stopped store or a backup from end to end",
		Long: `check compares the files in DIR (else --data-dir) with the store's ledger and
reads every record and its checksum, the log's included. It changes nothing, and needs no more memory
for a large store than for a small one. Exit code 1 if anything is damaged.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := a.cfg.DataDir
			if len(args) > 0 {
				dir = args[0]
			}
			return inspect.Check(cmd.Context(), a.stdout, a.stderr, dir)
		},
	}
}

// inspectCmd is inspect: the content of a store, key by key, for a user who looks
// for a key that is wrong.
func (a *app) inspectCmd() *cobra.Command {
	var opt inspect.Options
	var prefix, output string
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "show and check the keys of a stopped store",
		Long: `inspect opens the store in --data-dir without a server, reads every record and
checks it, in the base and in what the log has behind it. It changes nothing. Exit
code 1 if anything is damaged.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt.Prefix = []byte(prefix)
			// --hex is of the prefix and of what is printed, as in kvclient.
			if opt.Hex {
				b, err := hex.DecodeString(prefix)
				if err != nil {
					return cli.Usagef("--prefix %q is not hexadecimal", prefix)
				}
				opt.Prefix = b
			}
			var err error
			if opt.JSON, err = isJSON(output); err != nil {
				return err
			}
			return inspect.Run(cmd.Context(), a.stdout, a.cfg.DataDir, opt)
		},
	}
	cmd.Flags().BoolVar(&opt.Keys, "keys", false, "one line for each key")
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin so")
	cmd.Flags().BoolVar(&opt.Hex, "hex", false, "keys and --prefix are hexadecimal")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "form of the output: text or json")
	cmd.AddCommand(a.inspectLogCmd())
	return cmd
}

// isJSON is whether --output asks for JSON.
func isJSON(output string) (bool, error) {
	switch output {
	case "json":
		return true, nil
	case "text":
		return false, nil
	}
	return false, cli.Usagef("--output is %q, want text or json", output)
}

// inspectLogCmd is inspect log: the segments of a log, for a user whose store does not
// open, or who wants to know what a start will find.
func (a *app) inspectLogCmd() *cobra.Command {
	var opt inspect.LogOptions
	var segment, output string
	cmd := &cobra.Command{
		Use:   "log [DIR]",
		Short: "show and check the segments of a stopped store's log",
		Long: `log reads the segments of the log of the store in DIR (else --data-dir; DIR may
be the log's own directory), verifies every record, and says where each segment ends, and why: the log goes on in the next one
(full), a later start found the end there (cut), the log ends there (last), or
ends in a write that was cut short (torn), or what was durable does not verify
(damaged). It changes nothing, and works where a server refuses the log. What a
record holds is not shown. Exit code 1 if anything is damaged.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opt.JSON, err = isJSON(output); err != nil {
				return err
			}
			if segment != "" {
				if opt.Segment, err = inspect.ParseSegment(segment); err != nil {
					return cli.Usagef("--segment: %v", err)
				}
			}
			dir := a.cfg.DataDir
			if len(args) > 0 {
				dir = args[0]
			}
			return inspect.Log(cmd.Context(), a.stdout, dir, opt)
		},
	}
	cmd.Flags().StringVar(&segment, "segment", "", "only this one: a file's name (0000002a.seg) or a number (42)")
	cmd.Flags().BoolVar(&opt.Records, "records", false, "one line for each record, before its segment's")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "form of the output: text or json")
	return cmd
}
