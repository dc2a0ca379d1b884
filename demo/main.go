// Command demo shows the main job on real input: it starts a node, stores
// this machine's package database in it, reads every key back by RDMA READ
// and compares, kills the node with SIGKILL, starts it again on the same
// directory, compares again, and prints what it saw. "make demo" runs it.
//
// It drives the programs that users run: kvserver as a child process, import
// by kvclient, gets by the client library. The node is an embedded default: a
// temporary directory, a free port of the loopback address, the iwarp fabric.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

func main() {
	bin := flag.String("bin", "bin", "directory of kvserver and kvclient")
	status := flag.String("status", "/var/lib/dpkg/status", "package database to store")
	fabric := flag.String("fabric", "iwarp", "fabric of the node")
	gets := flag.Int("gets", 20_000, "gets to time, at least one of each key")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{bin: *bin, fabric: *fabric, gets: *gets, out: newPrinter(os.Stdout)}
	err := d.run(ctx, *status)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// A demo is one run.
type demo struct {
	bin    string
	fabric string
	gets   int
	out    *printer
}

func (d *demo) run(ctx context.Context, status string) (err error) {
	stanzas, from, err := readStanzas(status)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rdmakv-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d.out.step("input", "%d packages, %s, from %s", len(stanzas), bytesText(totalBytes(stanzas)), from)

	n, err := d.start(ctx, dir, "start")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Kill()) }()

	took, err := d.load(ctx, n, dir, stanzas)
	if err != nil {
		return err
	}
	d.out.step("import", "%d keys by kvclient import in %s, each put acknowledged after its fsync", len(stanzas), durationText(took))

	before, err := d.readBack(ctx, n, stanzas)
	if err != nil {
		return err
	}
	d.out.step("compare", "every key read back by RDMA READ, every byte is equal")

	pid := n.PID()
	if err := n.Kill(); err != nil {
		return err
	}
	d.out.step("SIGKILL", "process %d is gone", pid)
	if n, err = d.start(ctx, dir, "restart"); err != nil {
		return err
	}
	after, err := d.readBack(ctx, n, stanzas)
	if err != nil {
		return err
	}
	d.out.step("compare", "every key is there again, every byte is equal")

	code, err := n.Stop(30 * time.Second)
	if err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("kvserver ended with exit code %d after SIGTERM, want 0", code))
	}
	d.out.table(stanzas, before, after)
	return nil
}

// configHere names the config.yaml of the working directory, if there is one: the
// programs find it anyway, but do not believe one of another user, as in a checkout
// that is mounted into a container.
func configHere() []string {
	if _, err := os.Stat("config.yaml"); err != nil {
		return nil
	}
	return []string{"--config", "config.yaml"}
}

// start starts the node on the directory.
func (d *demo) start(ctx context.Context, dir, word string) (*node.Node, error) {
	n, err := node.Start(ctx, node.Options{
		Bin: filepath.Join(d.bin, "kvserver"),
		Args: append(configHere(), "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
			"--fabric", d.fabric, "--log-level", "warn"),
	})
	if err != nil {
		return nil, err
	}
	d.out.step(word, "kvserver, process %d, serves %s on %s after %s", n.PID(), d.fabric, n.Data, durationText(n.Startup))
	return n, nil
}

// load writes the stanzas as JSON Lines and has kvclient import them.
func (d *demo) load(ctx context.Context, n *node.Node, dir string, stanzas []stanza) (time.Duration, error) {
	file := filepath.Join(dir, "packages.jsonl")
	if err := writeJSONLines(file, stanzas); err != nil {
		return 0, err
	}
	start := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "kvclient"), append(configHere(), "--server", n.Data, "import", "--format", "jsonl", file)...)
	cmd.Env = node.CleanEnv(os.Environ())
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("kvclient import: %w\n%s", err, out)
	}
	return time.Since(start), nil
}
