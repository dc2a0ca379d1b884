package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// runCommand boots one guest for one program.
func runCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	var c lab.Config
	guestFlags(fs, &c, 1024)
	fs.BoolVar(&c.Count, "count", false, "the guest's clocks count instructions, 1 ns each, of one processor: figures do not depend on how busy the host is")
	stage := fs.String("stage", "", "programs of the shared directory, by name there, separated by commas, that are copied to "+lab.Staged+" first")
	limit := fs.Duration("timeout", 10*time.Minute, "for everything, booting included")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() == 0 {
		return 2, errors.New("run: which program?")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not finished after %v (-timeout)", *limit))
	defer cancel()
	if err := shareDir(&c, "run"); err != nil {
		return 1, err
	}
	g, err := lab.Boot(ctx, c)
	if err != nil {
		return 1, because(ctx, err)
	}
	if *stage != "" {
		if err := g.Stage(ctx, strings.Split(*stage, ",")...); err != nil {
			return 1, errors.Join(because(ctx, err), g.Close())
		}
	}
	env := testEnv(fs.Arg(0))
	if len(env) > 0 && c.Count {
		env = append(env, "RDMAKV_LAB_COUNT=1")
	}
	code, err := g.Agent().Run(ctx, agent.Cmd{Args: fs.Args(), Env: env}, os.Stdout, os.Stderr)
	return code, errors.Join(because(ctx, err), g.Close())
}

// because says which limit or signal was behind an error, if one was.
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// shareDir fills in the directory that guests share with the host.
func shareDir(c *lab.Config, name string) error {
	if c.Dir != "" {
		return nil
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	c.Dir = filepath.Join(root, ".cache", "lab", "share", name)
	return os.MkdirAll(c.Dir, 0o755)
}
