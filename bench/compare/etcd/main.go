package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "worker" {
		fmt.Fprintln(os.Stderr, "usage: etcd worker, with a job of bench/compare on standard input")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := jobs.Work(ctx, os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
