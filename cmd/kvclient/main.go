// Command kvclient reads and writes a rdmakv store from the command line.
//
// Exit codes, for scripts: 0 done (found, for get, exists and delete), 1 an
// error, 2 wrong usage or configuration, 3 the key is not there, 130 interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/bench"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/fabric"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/keys"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/nodes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app.App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ()}
	code := a.Run(ctx, os.Args[1:], commands)
	stop()
	os.Exit(code)
}

// commands are those of kvclient; cobra sorts them by name.
func commands(a *app.App) []*cobra.Command {
	return slices.Concat(keys.Commands(a), nodes.Commands(a), bench.Commands(a), fabric.Commands(a))
}
