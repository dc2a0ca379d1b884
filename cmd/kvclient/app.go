package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/usage"
	"github.com/rdmakv/rdmakv/internal/version"
)

// Exit codes.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitNotFound = 3
	// exitInterrupted is what a shell gives a program that Ctrl-C has ended.
	exitInterrupted = 130
)

// errSilent ends a command that was interrupted where that is how it ends.
var errSilent = errors.New("interrupted")

// errNotFound ends a command with exitNotFound. What is to be said has been
// said already.
var errNotFound = errors.New("not found")

// usageError is a mistake of the caller: exitUsage.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// app is one run of kvclient. Its fields stand for the process, so that a
// test can be one.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string

	// flags of every command
	file   string // --config
	hex    bool
	output string // text or json

	before  string // what was done before an error; said after it
	started bool   // a command's own code runs: errors are no longer usage errors
	cfg     *config.Loaded
}

// run runs a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	help := &checkedWriter{w: a.stdout}
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(help)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil && help.err != nil { // cobra does not look at it
		err, a.started = fmt.Errorf("write standard output: %w", cause(help.err)), true
	}
	defer func() {
		if a.before != "" {
			fmt.Fprintln(a.stderr, a.before)
		}
	}()
	var usage *usageError
	var faults config.Faults
	switch {
	case err == nil:
		return exitOK
	case err == errSilent:
		return exitInterrupted
	case err == errUnwell:
		return exitError
	case err == errNotFound:
		return exitNotFound
	case !a.started || errors.As(err, &usage) || errors.As(err, &faults):
		a.complain(err)
		return exitUsage
	case errors.Is(err, client.ErrNotFound):
		a.complain(err)
		return exitNotFound
	case ctx.Err() != nil:
		a.complain(errors.New("interrupted"))
		return exitInterrupted
	}
	if other := a.noSuchDevice(ctx, err); other != nil {
		err = other
	}
	a.complain(err)
	return exitError
}

// A checkedWriter keeps the first error of a writer.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// complain writes an error, each of its lines with the program's name but for
// those of a list.
func (a *app) complain(err error) {
	for line := range strings.SplitSeq(a.explain(err), "\n") {
		if strings.HasPrefix(line, "  ") {
			fmt.Fprintln(a.stderr, line)
			continue
		}
		fmt.Fprintf(a.stderr, "kvclient: %s\n", line)
	}
}

func (a *app) root() *cobra.Command {
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
				a.started = true
				return a.printVersion()
			}
			return usagef("%v", usage.NoCommand(cmd, nil))
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for kvclient")
	flags := root.PersistentFlags()
	flags.StringVar(&a.file, "config", "", "configuration file (else $RDMAKV_CONFIG, ./config.yaml, ~/.config/rdmakv/config.yaml, /etc/rdmakv/config.yaml)")
	flags.BoolVar(&a.hex, "hex", false, "keys and values on the command line and in text output are hexadecimal")
	flags.StringVarP(&a.output, "output", "o", "text", "form of the output: text or json")
	config.AddFlags(flags, config.ForClient)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.getCmd(), a.putCmd(), a.deleteCmd(), a.existsCmd(), a.scanCmd(), a.countCmd(), a.ttlCmd(),
		a.incrCmd(), a.touchCmd(), a.batchCmd(), a.watchCmd(), a.importCmd(), a.exportCmd(),
		a.statsCmd(), a.pingCmd(), a.waitCmd(), a.versionCmd(), a.inspectCmd(), a.benchCmd(), a.fabricCmd(), a.doctorCmd(), a.clusterCmd(), a.adminCmd())
	root.InitDefaultCompletionCmd()
	usage.Words(root)
	usage.Complete(root)
	return root
}

// prepare runs before each command: it checks what all of them share and
// loads the configuration.
func (a *app) prepare(cmd *cobra.Command) error {
	if err := a.checkOutput(cmd); err != nil {
		return err
	}
	for c := cmd; c != nil; c = c.Parent() {
		if n := c.Name(); !cmd.HasParent() || n == "completion" || n == "version" || strings.HasPrefix(n, "__complete") {
			a.started = true
			return nil // works without any configuration
		}
	}
	var err error
	a.cfg, err = config.Load(config.Options{Scope: config.ForClient, File: a.file, Flags: cmd.Flags(), Env: a.env})
	a.started = true
	if err != nil {
		return err
	}
	if err := machine.Pin(a.cfg.Cores); err != nil {
		return fmt.Errorf("cores: %w", err)
	}
	return nil
}

// moreOutputs annotates a command that has other forms of output besides text
// and json, separated by commas.
const moreOutputs = "outputs"

// checkOutput checks --output, for the command that is called.
func (a *app) checkOutput(cmd *cobra.Command) error {
	forms := []string{"text", "json"}
	if more := cmd.Annotations[moreOutputs]; more != "" {
		forms = append(forms, strings.Split(more, ",")...)
	}
	if slices.Contains(forms, a.output) {
		return nil
	}
	last := len(forms) - 1
	return usagef("--output is %q, want %s or %s", a.output, strings.Join(forms[:last], ", "), forms[last])
}

// dial connects to the server with the configuration in force.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	return a.dialFor(ctx, a.cfg.Timeout)
}

// dialFor is dial that waits so long for a server which is not there yet.
func (a *app) dialFor(ctx context.Context, wait time.Duration) (*client.Client, error) {
	cfg, err := a.clientConfig()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return client.Dial(ctx, cfg)
}

// clientConfig translates the configuration into the library's.
func (a *app) clientConfig() (client.Config, error) {
	log := a.logger()
	secret, err := a.cfg.Secret()
	if err != nil {
		return client.Config{}, err
	}
	if len(secret) > 0 {
		_ = memory.KeepSecret() // best effort: this process lives for moments
	}
	fabrics, err := pickFabrics(a.cfg.Config, log)
	if err != nil {
		return client.Config{}, err
	}
	cache := a.cfg.CacheEntries
	if cache == 0 {
		cache = -1 // the library's word for none
	}
	wait, spin := waiting(a.cfg.Config)
	return client.Config{
		Wait:         wait,
		Spin:         spin,
		Servers:      a.cfg.Servers,
		Fabrics:      fabrics,
		Devices:      a.cfg.Device,
		RequireRDMA:  a.cfg.RequireRDMA,
		Secret:       secret,
		Tenant:       a.cfg.Tenant,
		Timeout:      a.cfg.Timeout,
		OnWait:       a.notice(),
		CacheEntries: cache,
		MaxInflight:  a.cfg.MaxInflight,
		Logger:       log,
	}, nil
}

// withClient runs f with a connected client. An error of Close counts only
// when nothing else went wrong.
func (a *app) withClient(ctx context.Context, f func(*client.Client) error) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

// logger writes to standard error. Below warn it would only disturb, so info,
// which is the server's default, shows nothing here.
func (a *app) logger() *slog.Logger {
	level := slog.LevelWarn
	switch a.cfg.LogLevel {
	case "debug":
		level = slog.LevelDebug
	case "error":
		level = slog.LevelError
	}
	opt := &slog.HandlerOptions{Level: level}
	if a.cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, opt))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opt))
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of kvclient",
		RunE:  func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	b := version.Of("kvclient")
	if a.output == "json" {
		return a.printJSON(b)
	}
	return a.print(b.String() + "\n")
}
