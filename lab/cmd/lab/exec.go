package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/rdmakv/rdmakv/lab/agent"
)

// execCommand runs a program in a guest that is up.
func execCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	name := fs.String("name", "lab", "name of the guests")
	number := fs.Int("g", 1, "which of them")
	terminal := fs.Bool("t", false, "with a terminal")
	input := fs.Bool("i", false, "with standard input")
	dir := fs.String("C", "", "working directory in the guest")
	limit := fs.Duration("timeout", time.Hour, "for the program")
	var env []string
	fs.Func("e", "NAME=value for the program's environment; repeatable", func(s string) error {
		if !strings.Contains(s, "=") {
			return errors.New("not NAME=value")
		}
		env = append(env, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() == 0 {
		return 2, errors.New("exec: which program?")
	}
	state, err := stateDir(*name)
	if err != nil {
		return 1, err
	}
	conn, err := dial(ctx, state, fmt.Sprintf("agent%d", *number), *name)
	if err != nil {
		return 1, err
	}
	c := agent.NewClient(conn)
	defer c.Close()
	cmd := agent.Cmd{Args: fs.Args(), Env: append(testEnv(fs.Arg(0)), env...), Dir: *dir, Input: *input, Terminal: *terminal}
	// The signal is for the program; it is killed only if it does not end by
	// that.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), *limit, fmt.Errorf("not finished after %v (-timeout)", *limit))
	defer cancel()
	code, err := attach(ctx, c, cmd)
	return code, because(ctx, err)
}

// testEnv is the environment of test binaries: it tells them that they are in
// the lab and must not skip. kvserver and kvclient would refuse the variable,
// because it is none of their settings.
func testEnv(program string) []string {
	if strings.HasSuffix(program, ".test") {
		return []string{"RDMAKV_LAB=1"}
	}
	return nil
}

// patience is how long a program may take to end after it was interrupted.
const patience = 5 * time.Second

// attach runs a program with the standard streams and signals of this process.
func attach(ctx context.Context, c *agent.Client, cmd agent.Cmd) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd.Input = cmd.Input || cmd.Terminal
	if cmd.Terminal {
		cmd.Env = append(cmd.Env, "TERM="+os.Getenv("TERM"))
	}
	p, err := c.Start(ctx, cmd)
	if err != nil {
		return 1, err
	}
	if cmd.Terminal && term.IsTerminal(int(os.Stdin.Fd())) {
		old, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return 1, err
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), old) }()
		defer resize(p)()
	}
	if cmd.Input {
		go func() { // a read of the terminal cannot be ended; the process does
			_, _ = io.Copy(p.Stdin(), os.Stdin)
			p.Stdin().Close()
		}()
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		for s := range signals {
			_ = p.SignalGroup(s.(syscall.Signal))
			time.AfterFunc(patience, cancel)
		}
	}()
	code, err = p.Copy(ctx, os.Stdout, os.Stderr)
	return code, err
}

// resize keeps the program's terminal as large as ours until it is told to stop.
func resize(p *agent.Process) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	set := func() {
		if cols, rows, err := term.GetSize(int(os.Stdin.Fd())); err == nil {
			_ = p.Resize(uint16(rows), uint16(cols))
		}
	}
	set()
	go func() {
		for range changes {
			set()
		}
	}()
	return func() { signal.Stop(changes); close(changes) }
}
