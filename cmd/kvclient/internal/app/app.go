// Package app is one run of kvclient: its streams, the flags that every command
// has, the configuration in force, the connection to the store, how values are read
// and printed, and how an error becomes a line and an exit code. The commands
// themselves are in the packages keys, nodes, bench and fabric, which build on this
// one and not on each other (except that doctor asks package fabric for the ways to
// an address).
//
// All state is inside an App, and an App takes its streams and its environment from
// its maker, so that a test runs a whole command line in its own process.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/version"
)

// ExitNotFound is kvclient's own exit code: a key is not there.
const ExitNotFound = 3

// ErrInterrupted ends a command that only an interruption can end, such as watch:
// it is no failure, so nothing is printed, and the exit code alone says how it
// ended.
var ErrInterrupted = errors.New("interrupted")

// ErrNotFound ends a command with ExitNotFound. The command has said already which
// key is not there, so nothing more is printed.
var ErrNotFound = errors.New("not found")

// ErrFailed ends a command whose report has a failure in it with ExitError. The
// report has been printed already, so nothing more is.
var ErrFailed = errors.New("something failed")

// An App is one run of kvclient. Its fields stand for what a process has, so that a
// test can be one: the maker of an App sets Stdin, Stdout, Stderr and Env and calls
// Run once. Commands read the other exported fields while they run; only doctor,
// which loads the configuration by itself because a wrong one is a finding, sets
// Started and Config.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Env            []string

	// flags of every command
	File   string // --config
	Hex    bool   // keys and values are hexadecimal on the command line and in text
	Output string // text or json

	before  string // what was done before an error: it is printed behind the error
	Started bool   // a command's own code runs: errors are no longer usage errors
	// Config is in force from the moment a command begins. It is nil for commands
	// that need none, and as long as doctor has found it to be wrong.
	Config *config.Loaded
}

// Run runs a command line with the given commands and returns the exit code. It is
// the one place where an error becomes a line on standard error and an exit code,
// so that every command ends alike.
//
// An error before a command's own code runs is one of cobra about the command line,
// and therefore ExitUsage. After that the kind of the error decides. Once a command
// has been interrupted, the interruption is the reason for any other error, and
// only the interruption is printed.
func (a *App) Run(ctx context.Context, args []string, commands func(*App) []*cobra.Command) int {
	root := a.Root(commands)
	help := &cli.CheckedWriter{W: a.Stdout} // cobra looks at no error of what it prints
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(help)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil && help.Err != nil { // cobra does not look at it
		err, a.Started = fmt.Errorf("write standard output: %w", cli.Cause(help.Err)), true
	}
	defer func() {
		if a.before != "" {
			fmt.Fprintln(a.Stderr, a.before)
		}
	}()
	switch {
	case err == nil:
		return cli.ExitOK
	case err == ErrInterrupted:
		return cli.ExitInterrupted
	case err == ErrFailed:
		return cli.ExitError
	case err == ErrNotFound:
		return ExitNotFound
	case !a.Started || cli.IsUsage(err):
		a.Complain(err)
		return cli.ExitUsage
	case errors.Is(err, client.ErrNotFound):
		a.Complain(err)
		return ExitNotFound
	case ctx.Err() != nil:
		a.Complain(errors.New("interrupted"))
		return cli.ExitInterrupted
	}
	if other := a.noSuchDevice(ctx, err); other != nil {
		err = other
	}
	a.Complain(err)
	return cli.ExitError
}

// Complain writes an error to standard error, each of its lines with the program's
// name but for those of a list.
func (a *App) Complain(err error) {
	cli.Complain(a.Stderr, "kvclient", a.Explain(err))
}

// Root makes the tree of commands: those given, version, help and completion. The
// flags here are those of every command; each key of the configuration is one of
// them, so that a test of a shell line needs no file.
func (a *App) Root(commands func(*App) []*cobra.Command) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "kvclient",
		Short: "read and write a rdmakv store",
		Long: `kvclient reads and writes a rdmakv store.

A get is done by RDMA READs of the server's memory; the server's CPU takes no
part in it. Everything else is a message to the server.

Exit codes: 0 done (found), 1 error, 2 wrong usage, 3 key not found, 130
interrupted (Ctrl-C).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				a.Started = true
				return a.printVersion()
			}
			return cli.Usagef("%v", cli.NoCommand(cmd, nil))
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for kvclient")
	flags := root.PersistentFlags()
	flags.StringVar(&a.File, "config", "", "configuration file (else $RDMAKV_CONFIG, ./config.yaml, ~/.config/rdmakv/config.yaml, /etc/rdmakv/config.yaml)")
	flags.BoolVar(&a.Hex, "hex", false, "keys and values on the command line and in text output are hexadecimal")
	flags.StringVarP(&a.Output, "output", "o", "text", "form of the output: text or json")
	config.AddFlags(flags, config.ForClient)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.versionCmd())
	root.AddCommand(commands(a)...)
	root.InitDefaultCompletionCmd()
	cli.Words(root)
	cli.Complete(root)
	return root
}

// prepare runs before each command: it checks --output, loads the configuration and
// pins the process to the processors that are configured, before there is any work.
// Commands that only print something about the program work without a
// configuration, also where there is a wrong one: a user whose config.yaml is
// refused must still get --help.
func (a *App) prepare(cmd *cobra.Command) error {
	if err := a.checkOutput(cmd); err != nil {
		return err
	}
	if !cmd.HasParent() || cli.NeedsNoConfig(cmd) { // without a parent: --version
		a.Started = true
		return nil
	}
	var err error
	a.Config, err = config.Load(config.Options{Scope: config.ForClient, File: a.File, Flags: cmd.Flags(), Env: a.Env})
	a.Started = true
	if err != nil {
		return err
	}
	if err := machine.Pin(a.Config.Expert.Cores); err != nil {
		return fmt.Errorf("expert.cores: %w", err)
	}
	return nil
}

// MoreOutputs is the annotation of a command that has other forms of output besides
// text and json; its value is their names, separated by commas.
const MoreOutputs = "outputs"

// checkOutput checks --output before a command does anything: forms are a flag of
// every command, but not every command has all of them.
func (a *App) checkOutput(cmd *cobra.Command) error {
	forms := []string{"text", "json"}
	if more := cmd.Annotations[MoreOutputs]; more != "" {
		forms = append(forms, strings.Split(more, ",")...)
	}
	if slices.Contains(forms, a.Output) {
		return nil
	}
	last := len(forms) - 1
	return cli.Usagef("--output is %q, want %s or %s", a.Output, strings.Join(forms[:last], ", "), forms[last])
}

// Logger writes to standard error. kvclient shares log_level with kvserver, whose
// default is info; at that level a command that lives for moments would only
// disturb with what it did, so info shows no more than warn here.
func (a *App) Logger() *slog.Logger {
	level := cli.Level(a.Config.LogLevel)
	if level == slog.LevelInfo {
		level = slog.LevelWarn
	}
	return cli.Log(a.Stderr, a.Config.LogFormat, &slog.HandlerOptions{Level: level})
}

func (a *App) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of kvclient",
		RunE:  func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

// printVersion prints the release and what it was built from, for both "version"
// and "--version".
func (a *App) printVersion() error {
	b := version.Of("kvclient")
	if a.Output == "json" {
		return a.PrintJSON(b)
	}
	return a.Print(b.String() + "\n")
}
