package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store"
)

// Where clients map the node's memory (rdma.CapMapped), it outlives the process:
// a client that was stopped in the middle of a get could go on with the memory of
// a dead incarnation. That every such client is gone is proved by a file lock:
//
//	node      opens DATA_DIR/readers.lock, locks it (shared), passes the descriptor on
//	          with each connection and closes its own at once
//	client    closes it when it has unmapped everything; its death does so too
//	next node, before it serves anybody: gets the lock for itself alone: nobody has
//	          the old memory. Or waits until it does, or until the last lease that
//	          the old incarnation can have given is over.
//
// The lock belongs to the open file that the descriptors share (flock(2)), so it
// lasts exactly until the last of them is closed, and needs nobody's word.

// readersFile is the name of the lock in the data directory.
const readersFile = "readers.lock"

// ReaderProof returns what opens the descriptors of a data directory: the Proof of
// a fabric whose peers map memory. nil if there is no directory.
func ReaderProof(dataDir string) func() (*os.File, error) {
	if dataDir == "" {
		return nil
	}
	name := filepath.Join(dataDir, readersFile)
	return func() (*os.File, error) {
		f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("flock of %s: %w", name, err), f.Close())
		}
		return f, nil
	}
}

// hasReaderLock reports whether waitReaders can tell. A cache has no directory,
// and waits for every predecessor.
func (c *Config) hasReaderLock() bool {
	return c.DataDir != "" && c.Mode != store.Cache
}

// readersPoll is how often the lock is tried.
const readersPoll = 5 * time.Millisecond

// waitReaders returns once nobody can believe memory of an earlier incarnation
// that he has mapped. The store is open: whoever had it before us is gone, and its
// last beat was before now. Nothing is served yet, by SEND neither.
func waitReaders(ctx context.Context, cfg *Config, log *base.Log) error {
	if !cfg.hasReaderLock() {
		return nil
	}
	f, err := os.Open(filepath.Join(cfg.DataDir, readersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no client has ever mapped anything
	}
	if err != nil {
		return fmt.Errorf("server: the lock of clients that map memory: %w", err)
	}
	defer f.Close()
	over := time.NewTimer(cfg.Lease + cfg.Lease/100 + cfg.Beat)
	defer over.Stop()
	poll := time.NewTicker(readersPoll)
	defer poll.Stop()
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil // given back by Close
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("server: flock of %s: %w", f.Name(), err)
		}
		if !waited {
			log.Info("clients have memory of an earlier incarnation mapped: nothing is served before they let go, or their leases are over", "lease", cfg.Lease)
		}
		select {
		case <-poll.C:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
