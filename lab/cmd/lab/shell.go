package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// node starts a server in the guest and waits until it is ready. Its address is
// the guest's, so that clients use the RDMA device and not the loopback. The lease
// is longer than the pause of showcase.
const node = `
cd /tmp
setsid kvserver --listen 10.77.0.1:7400 --data-dir /tmp/node --memory-limit 256MiB --lease 5s >/tmp/kvserver.log 2>&1 &
tries=0
until wget -q -O /dev/null http://127.0.0.1:7401/readyz 2>/dev/null; do
	kill -0 $! 2>/dev/null && [ $tries -lt 150 ] || { cat /tmp/kvserver.log; exit 1; }
	tries=$((tries + 1))
	sleep 0.2
done
`

// shellEnv is what node and clients have in their environment: verbs alone.
// Without it kvclient, which runs on the server's host, would take shared memory,
// or fall back to iwarp silently in front of the reader of a page about verbs. All
// processors of the guest are emulated, so calls may take long.
var shellEnv = []string{
	"PATH=" + lab.Staged + ":/mnt:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin",
	"RDMAKV_SERVERS=10.77.0.1:7400",
	"RDMAKV_FABRIC=verbs",
	"RDMAKV_TIMEOUT=30s",
}

// showcase is a program of the guest: one client reads keys, and goes on reading
// them while the server is stopped. A client that is started meanwhile could not,
// because it needs an answer of the server to get in.
const showcase = `#!/bin/sh
set -e
kvclient bench --load-only --records 200
echo "A client gets keys, one after the other, for 9 seconds."
kvclient bench --skip-load --records 200 --workload get --warmup 100ms --duration 9s &
client=$!
sleep 4
echo "SIGSTOP: not one instruction of kvserver is run for 2 seconds. The client goes on:"
killall -STOP kvserver
sleep 2
killall -CONT kvserver
echo "SIGCONT."
wait $client
echo "No get has failed, and none has waited for the server: see max, which is below 2s."
`

const welcome = `
You are root in a virtual machine with a Soft-RoCE device: RDMA verbs as a NIC
has them, done by the kernel. A kvserver runs at 10.77.0.1:7400. Things to try:

  rdma link; ibv_devinfo -v          the device, its port and its GIDs
  kvclient put hello world; kvclient get hello
  kvclient ping                      fabric, device, GID, MTU, round trips
  kvclient fabric devices            what the product sees
  showcase                           a stopped server, whose memory is still read
  ib_read_lat & sleep 1; ib_read_lat 10.77.0.1
                                     latency of RDMA READ, by perftest
  rping -s -C 3 & sleep 1; rping -c -a 10.77.0.1 -C 3 -v
  ls /mnt/examples                   programs that teach; docs/learn has their pages
  /mnt/examples/errors               what RDMA errors look like
  cat /tmp/kvserver.log              what the server says

/mnt is %s of the host. "exit" ends the machine.

`

// shellCommand boots a guest with a node in it and gives it the terminal.
func shellCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	var c lab.Config
	guestFlags(fs, &c, 1024)
	bin := fs.String("bin", "bin", "directory with kvserver and kvclient")
	command := fs.String("c", "", "run this command of the guest's sh instead of a terminal, and return its exit code")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if err := shareDir(&c, "shell"); err != nil {
		return 1, err
	}
	// The examples get a directory of their own, which is not in the PATH: one of
	// them is called rping, as a program of rdma-core is.
	examples, err := filepath.Glob(filepath.Join(*bin, "examples", "*"))
	if err != nil {
		return 1, err
	}
	for _, file := range append(examples, filepath.Join(*bin, "kvserver"), filepath.Join(*bin, "kvclient")) {
		if err := give(*bin, file, c.Dir); err != nil {
			return 1, fmt.Errorf("%w (make build makes it)", err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "showcase"), []byte(showcase), 0o755); err != nil {
		return 1, err
	}
	g, err := lab.Boot(ctx, c)
	if err != nil {
		return 1, err
	}
	defer g.Close()
	setup, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := g.Stage(setup, "kvserver", "kvclient"); err != nil {
		return 1, err
	}
	code, err := g.Agent().Run(setup, agent.Cmd{Args: []string{"sh", "-c", node}, Env: shellEnv}, os.Stderr, os.Stderr)
	if err != nil || code != 0 {
		return 1, errors.Join(err, errors.New("kvserver did not start in the guest"))
	}
	if *command != "" {
		return g.Agent().Run(ctx, agent.Cmd{Args: []string{"sh", "-c", *command}, Env: shellEnv, Dir: "/tmp"}, os.Stdout, os.Stderr)
	}
	fmt.Printf(welcome, c.Dir)
	// The terminal passes Ctrl-C on as a byte: signals of this process end it.
	_, err = attach(ctx, g.Agent(), agent.Cmd{
		Args: []string{"sh", "-c", "[ -x /usr/bin/bash ] && exec bash --norc -i; exec sh -i"},
		Env:  append(slices.Clone(shellEnv), "PS1=guest# "), Dir: "/tmp", Terminal: true,
	})
	return 0, err // the shell's own exit code is that of the last command typed
}

// give copies a program below the directory bin to the same place below dir.
func give(bin, file, dir string) error {
	name, err := filepath.Rel(bin, file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
