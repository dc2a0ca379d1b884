// Command kvserver is one node of a rdmakv store.
//
// The first line on standard output, once it serves, is
//
//	ready data=HOST:PORT admin=HOST:PORT node=ID gossip=HOST:PORT fabrics=FABRIC/DEVICE,...
//
// and it is the only one; data is the first of several addresses; node and gossip
// are there for a node of a cluster; the log goes to standard error. SIGTERM and
// SIGINT end it cleanly, a second one at once. At SIGHUP it reads tenants and
// gossip keys again.
//
// Exit codes: 0 ended as it was told to, 1 an error, 2 wrong usage or
// configuration, 3 another process is this node or was, further on. A SIGTERM on a
// full disk ends it with 1, because the mark of a clean stop cannot be written.
//
// app.go has the commands, serve.go is the command that runs a node, offline.go those
// on a stopped store; fabric.go and cluster.go translate the configuration.
package main

import (
	"context"
	"os"
)

func main() {
	hideFiles()
	a := &app{stdout: os.Stdout, stderr: os.Stderr, env: os.Environ(), signals: listenForSignals(), reloads: listenForReloads, fabrics: newFabrics}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}
