package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
)

// A node is a kvserver process.
type node struct {
	*servers.Server
	settings servers.Rdmakv
	dirs     []string
}

// start runs kvserver with so much memory, in directories of its own; fabric is a word of its
// configuration.
func start(ctx context.Context, o options, limit uint64, fabric string) (_ *node, err error) {
	n := &node{settings: servers.Rdmakv{
		Bin: filepath.Join(o.bin, "kvserver"), Sync: "off", Wait: "adaptive", Memory: fmt.Sprintf("%dMiB", (limit+1<<20-1)>>20), Shm: fabric != "iwarp",
		More: []string{"--fabric", fabric},
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.removeAll())
		}
	}()
	for _, parent := range []string{o.dir, ""} { // sockets where the path is short
		dir, err := os.MkdirTemp(parent, "kvs")
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err != nil {
			return nil, err
		}
		n.dirs = append(n.dirs, dir)
	}
	n.Server, err = n.settings.Start(ctx, servers.Place{Disk: n.dirs[0], Sockets: n.dirs[1]})
	return n, err
}

func (n *node) removeAll() error {
	var errs []error
	for _, dir := range n.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// stop ends the process and removes what it has stored.
func (n *node) stop() error { return errors.Join(n.Server.Stop(), n.removeAll()) }

// process reads what the server's process takes, but for its goroutines.
func (n *node) process() (p process, err error) {
	all, _, err := servers.Resident(n.PID())
	if err != nil {
		return p, err
	}
	p.Resident = int64(all)
	p.Files, err = files(n.PID())
	return p, err
}

// files counts the file descriptors of a process.
func files(pid int) (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(list), err
}

// disk is what the store takes on the disk: of its log, and of all else.
func (n *node) disk() (log, base uint64, err error) {
	root := filepath.Join(n.Dir, "data")
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // a table that has just been replaced
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(root, path); filepath.Dir(rel) == logDir {
			log += uint64(info.Size())
		} else {
			base += uint64(info.Size())
		}
		return nil
	})
	return log, base, err
}

// logDir is where a data directory has its log.
const logDir = "log"

// A target is how clients reach a node; it travels to workers as JSON.
type target struct {
	Addr, Fabric, ShmDir string
	LeaseKeep            time.Duration
}

func (n *node) target(fabric string) target {
	return target{Addr: n.TCP, Fabric: fabric, ShmDir: n.ShmDir}
}

// fabrics is the one that the target names, and no other. Clients of a process share it.
func (t target) fabrics() ([]rdma.Fabric, error) {
	switch t.Fabric {
	case "iwarp":
		return []rdma.Fabric{iwarp.New(iwarp.Options{NoCRCWithin: true})}, nil
	case "shm":
		return []rdma.Fabric{shm.New(shm.Options{Dir: t.ShmDir})}, nil
	}
	return nil, fmt.Errorf("fabric %q is unknown", t.Fabric)
}

func (t target) dial(ctx context.Context, fabrics []rdma.Fabric) (*client.Client, error) {
	return client.Dial(ctx, client.Config{Servers: []string{t.Addr}, Fabrics: fabrics, LeaseKeep: t.LeaseKeep, Timeout: time.Minute, DialTimeout: 10 * time.Second})
}

// connect is a client of the node in this process.
func (n *node) connect(ctx context.Context, fabric string) (*client.Client, error) {
	t := n.target(fabric)
	fabrics, err := t.fabrics()
	if err != nil {
		return nil, err
	}
	return t.dial(ctx, fabrics)
}

// keys are those of redis-benchmark, as in bench/compare.
func keys() load.Keys { return load.Keys{Prefix: "key:", Size: keyBytes} }

const keyBytes, valueBytes = 16, 64
