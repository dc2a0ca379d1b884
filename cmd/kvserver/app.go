package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/usage"
	"github.com/rdmakv/rdmakv/internal/version"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	// exitRefused: another process is this node, or was, further on; starting again
	// does not help (RestartPreventExitStatus of deploy/systemd).
	exitRefused = 3
)

// usageError is a mistake of the caller: exitUsage.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// app is one run of kvserver. Its fields stand for the process.
type app struct {
	stdout, stderr io.Writer
	env            []string
	signals        <-chan os.Signal        // SIGTERM and SIGINT
	reloads        func() <-chan os.Signal // takes over SIGHUP; nil: nobody does
	fabrics        func(config.Config, *slog.Logger) fabrics

	file    string // --config
	above   uint16 // --accept-rollback
	started bool   // a command's own code runs: errors are no longer usage errors
	cfg     *config.Loaded
}

// listenForSignals takes over the signals that end a server. A log or a ready
// line that nobody reads any more (SIGPIPE) is no reason to end.
func listenForSignals() <-chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

// listenForReloads takes over the signal to read tenants and keys again.
func listenForReloads() <-chan os.Signal {
	c := make(chan os.Signal, 1) // one that waits covers those behind it
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// run runs a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	for _, line := range distinctLines(err.Error()) {
		if strings.HasPrefix(line, "  ") { // of a list
			fmt.Fprintln(a.stderr, line)
			continue
		}
		fmt.Fprintf(a.stderr, "kvserver: %s\n", line)
	}
	var usage *usageError
	var faults config.Faults
	if !a.started || errors.As(err, &usage) || errors.As(err, &faults) {
		return exitUsage
	}
	if server.MustNotServe(err) {
		return exitRefused
	}
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvserver",
		Short: "one node of a rdmakv store",
		Long: `kvserver is one node of a rdmakv store: it keeps keys and values in registered
memory, where clients read them by RDMA, and on disk.

Without a command it serves. Every flag below is also a key of config.yaml and
a variable RDMAKV_...; the flag wins, then the variable, then the file.

Exit codes: 0 ended as told, 1 error, 2 wrong usage or configuration, 3 another
process is this node, or the cluster has seen it further on than its data directory
is: do not start it again before that is settled. SIGTERM on a
full disk ends it with 1, because the mark of a clean stop cannot be written;
everything acknowledged is there at the next start.`,
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
	for _, cmd := range []*cobra.Command{root, serve} {
		cmd.Flags().Uint16Var(&a.above, "accept-rollback", 0, "serve a data_dir that is an older copy, although the cluster has seen this epoch of it: what was acknowledged since is lost")
	}
	root.AddCommand(
		serve,
		&cobra.Command{
			Use:   "config",
			Short: "print the configuration in force, and where each value comes from",
			RunE: func(*cobra.Command, []string) error {
				_, err := a.cfg.WriteTo(a.stdout)
				return err
			},
		},
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
	)
	root.InitDefaultCompletionCmd()
	usage.Words(root)
	usage.Complete(root)
	root.SetVersionTemplate("{{.Version}}\n")
	return root
}

// prepare runs before each command and loads the configuration.
func (a *app) prepare(cmd *cobra.Command) error {
	for c := cmd; c != nil; c = c.Parent() {
		if n := c.Name(); n == "completion" || n == "version" || strings.HasPrefix(n, "__complete") {
			a.started = true
			return nil // works without any configuration
		}
	}
	var err error
	a.cfg, err = config.Load(config.Options{Scope: config.ForServer, File: a.file, Flags: cmd.Flags(), Env: a.env})
	a.started = true
	return err
}

// logger writes to standard error in the configured form.
func (a *app) logger() *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}
	opt := &slog.HandlerOptions{Level: levels[a.cfg.LogLevel], ReplaceAttr: plainErrors} // info is the zero level
	if a.cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, opt))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opt))
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
