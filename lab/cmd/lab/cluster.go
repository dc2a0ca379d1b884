package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// clusterCommand boots several guests and runs a program in the first, which
// can start others elsewhere through the agents.
func clusterCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	var c lab.Config
	guestFlags(fs, &c, 768)
	n := fs.Int("guests", 3, "how many guests")
	limit := fs.Duration("timeout", 20*time.Minute, "for everything, booting included")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() == 0 {
		return 2, errors.New("cluster: which program, in guest 1? (lab up -guests 3 boots guests that stay)")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not finished after %v (-timeout)", *limit))
	defer cancel()
	if err := shareDir(&c, "cluster"); err != nil {
		return 1, err
	}
	cl, err := lab.NewCluster(ctx, *n, c)
	if err != nil {
		return 1, because(ctx, err)
	}
	code, err := cl.Guest(1).Agent().Run(ctx, agent.Cmd{Args: fs.Args(), Env: testEnv(fs.Arg(0))}, os.Stdout, os.Stderr)
	return code, errors.Join(because(ctx, err), cl.Close())
}

// imageCommand makes what guests boot from, so that the first boot is as fast
// as any, and says what is missing.
func imageCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	limit := fs.Duration("timeout", 10*time.Minute, "for downloading and building")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	img, err := lab.Image(ctx, lab.Config{})
	if lab.Unavailable(err) {
		return missing, err
	}
	if err != nil {
		return 1, err
	}
	fmt.Printf("the lab can boot Linux %s\n", img.Release)
	return 0, nil
}

// missing is the exit code of "lab image" where the lab is unavailable.
const missing = 3
