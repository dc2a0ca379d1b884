package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/version"
)

// exitRefused is kvserver's own exit code: another process is this node, or was,
// further on. Starting again does not help (RestartPreventExitStatus of
// deploy/systemd).
const exitRefused = 3

// An app is one run of kvserver. Its fields stand for what a process has, so that a
// test can be one: signals are a channel, and the fabrics come from a function that
// a test replaces.
type app struct {
	stdout, stderr io.Writer
	env            []string
	signals        <-chan os.Signal        // SIGTERM and SIGINT
	reloads        func() <-chan os.Signal // takes over SIGHUP; nil: SIGHUP is not taken over
	fabrics        func(config.Config, *slog.Logger) fabricSet

	file    string // --config
	above   uint16 // --accept-rollback
	started bool   // a command's own code runs: errors are no longer usage errors
	cfg     *config.Loaded
}

// listenForSignals takes over the signals that end a server. If the reader of the
// log or of the ready line has gone (SIGPIPE), that is no reason to end: clients
// are still served.
func listenForSignals() <-chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

// listenForReloads takes over SIGHUP, the signal to read tenants and keys again.
// Until it is called SIGHUP ends the program, as it ends any other whose terminal
// goes.
func listenForReloads() <-chan os.Signal {
	c := make(chan os.Signal, 1) // one that waits covers those behind it
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// run runs a command line and returns the exit code. It is the one place where an
// error becomes lines on standard error and an exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return cli.ExitOK
	}
	cli.Complain(a.stderr, "kvserver", strings.Join(distinctLines(err.Error()), "\n"))
	if !a.started || cli.IsUsage(err) {
		return cli.ExitUsage
	}
	if server.MustNotServe(err) {
		return exitRefused
	}
	return cli.ExitError
}

// root makes the tree of commands. Without a command kvserver serves, because that
// is what a unit file or a container calls it for.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvserver",
		Short: "one node of a rdmakv store",
		Long: `kvserver is one node of a rdmakv store: it keeps keys and values in registered
memory, where clients read them by RDMA, and on disk.

Without a command it serves. Every flag below is also a key of config.yaml and
a variable RDMAKV_...; the flag wins, then the variable, then the file.

Exit codes: 0 ended as told, 1 error, 2 wrong usage or configuration, 3 another
process is this node, the cluster has seen it further on than its data directory
is, or its program does not read the cluster's feature level: do not start it again
before that is settled. SIGTERM on a full disk ends it with 1, because the mark of a
clean stop cannot be written; everything acknowledged is there at the next start.`,
		Version:           version.Of("kvserver").String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.file, "config", "", "configuration file (else $RDMAKV_CONFIG, ./config.yaml, ~/.config/rdmakv/config.yaml, /etc/rdmakv/config.yaml)")
	config.AddFlags(flags, config.ForServer)
	serve := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"start", "run", "up"},
		Short:      "serve until told to end (what kvserver does without a command)",
		RunE:       func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	// With and without the word "serve" it is one command, so both have its flag.
	// The flag is no key of the configuration: it overrides a refusal, so it must
	// be given anew each time.
	for _, cmd := range []*cobra.Command{root, serve} {
		cmd.Flags().Uint16Var(&a.above, "accept-rollback", 0, "serve a data_dir that is an older copy, although the cluster has seen this epoch of it: what was acknowledged since is lost")
	}
	root.AddCommand(
		serve,
		a.configCmd(),
		&cobra.Command{
			Use:   "version",
			Short: "print the version of kvserver",
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprintln(a.stdout, version.Of("kvserver"))
				return err
			},
		},
		a.inspectCmd(),
		a.checkCmd(),
		a.backupCmd(),
		a.restoreCmd(),
		a.keepCmd(),
	)
	root.InitDefaultCompletionCmd()
	cli.Words(root)
	cli.Complete(root)
	// cobra's own has the word "version" in it, which our text has not.
	root.SetVersionTemplate("{{.Version}}\n")
	return root
}

// configCmd prints the configuration.
func (a *app) configCmd() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "config",
		Short: "print the configuration in force, and where each value comes from",
		Long: `config prints the configuration in force as a config.yaml, and where each value
comes from. Settings of the section expert, which have flags that no help text
lists, are printed when they were set, and with --all.`,
		RunE: func(*cobra.Command, []string) error { return a.cfg.Print(a.stdout, all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "the section expert, too")
	return cmd
}

// prepare runs before each command and loads the configuration. Commands on a
// stopped store need it, too: it says where the store is.
func (a *app) prepare(cmd *cobra.Command) error {
	if cli.NeedsNoConfig(cmd) || cmd.Name() == keepCommand {
		a.started = true
		return nil
	}
	var err error
	a.cfg, err = config.Load(config.Options{Scope: config.ForServer, File: a.file, Flags: cmd.Flags(), Env: a.env})
	a.started = true
	return err
}

// logger writes to standard error in the configured form; standard output has the
// ready line and nothing else.
func (a *app) logger() *slog.Logger {
	return cli.Log(a.stderr, a.cfg.LogFormat, &slog.HandlerOptions{Level: cli.Level(a.cfg.LogLevel), ReplaceAttr: plainErrors})
}

// plainErrors logs an error as its text. slog would ask it for its details,
// and those of Pebble's errors are stack traces of several pages.
func plainErrors(_ []string, attr slog.Attr) slog.Attr {
	if err, ok := attr.Value.Any().(error); ok {
		attr.Value = slog.StringValue(strings.Join(distinctLines(err.Error()), "; "))
	}
	return attr
}

// distinctLines takes a message apart and leaves out lines that repeat another:
// errors that were joined and wrapped several times say everything several
// times.
func distinctLines(text string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}
