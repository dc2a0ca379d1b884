// Command kvclient reads and writes a rdmakv store from the command line.
//
// Exit codes, for scripts: 0 done (found, for get, exists and delete), 1 an
// error, 2 wrong usage or configuration, 3 the key is not there, 130 interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ()}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
