package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/keeper"
	"github.com/rdmakv/rdmakv/internal/server"
)

// keepCommand is the word for the process that holds the memory of a node (internal/keeper). The node starts it; nobody else does.
const keepCommand = "keep-memory"

// keepCmd is that process. It has no configuration, no log and no terminal, and it ends by itself. A signal that is meant for a group of processes does not end it;
// SIGTERM to it alone does.
func (a *app) keepCmd() *cobra.Command {
	return &cobra.Command{
		Use:    keepCommand,
		Short:  "hold the memory of a node between two of its processes (kvserver runs it by itself)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			go func() {
				select {
				case <-a.signals:
					stop()
				case <-ctx.Done():
				}
			}()
			return keeper.Serve(ctx)
		},
	}
}

// keepMemory takes over what this node's process before has left, and has a keeper for the next one. A node that cannot have one says why, and begins empty
// at its next start. The error is that this process must not serve: another one has the directory, or a later start could find old memory. release
// is called when the node has ended.
func (a *app) keepMemory(ctx context.Context, cfg *server.Config, log *slog.Logger) (release func(), err error) {
	keep := time.Duration(a.cfg.MemoryKeep)
	if keep == 0 {
		lock, err := keeper.Forget(ctx, cfg.DataDir, a.cfg.Mode != "cache")
		if err != nil {
			return nil, keepFault(cfg.DataDir, err)
		}
		return func() { _ = lock.Close() }, nil // a nil file's Close does nothing
	}
	program, _ := os.Executable() // if there is no name, no keeper starts, and that is told
	// What an upgrade has replaced is named "... (deleted)".
	found, err := keeper.Start(ctx, cfg.DataDir, keep, strings.TrimSuffix(program, " (deleted)"), keepCommand)
	switch {
	case errors.Is(err, keeper.ErrBusy), errors.Is(err, keeper.ErrStale), ctx.Err() != nil:
		return nil, keepFault(cfg.DataDir, err)
	case err != nil:
		log.Warn("memory is not kept for the next start: this one begins empty, and so will the next", "data_dir", cfg.DataDir, "err", err)
		return func() {}, nil
	case found.Cold != nil:
		log.Warn("what was kept is lost: this start begins empty", "data_dir", cfg.DataDir, "err", found.Cold)
	}
	cfg.Keeping = &server.Keeping{Keeper: found.Client, Left: found.Left}
	cfg.KeptAs = keptAs(a.cfg.Mode, cfg.Secret)
	log.Info("memory is kept for the next start", "data_dir", cfg.DataDir, "memory_keep", keep, "keeper", found.Client.PID(), "kept_before", max(0, len(found.Left)-1))
	go func() {
		<-found.Client.Gone()
		if err := found.Client.Err(); err != nil {
			log.Warn("the keeper of this node's memory is gone: the next start begins empty", "data_dir", cfg.DataDir, "err", err)
		}
	}()
	return func() { _ = found.Client.Close() }, nil
}

// keepFault says what to do about a directory that another process has, or that memory cannot be removed from.
func keepFault(dir string, err error) error {
	switch {
	case errors.Is(err, keeper.ErrBusy):
		return fmt.Errorf("data_dir %s: %w: stop that one, or give this one a data_dir of its own", dir, err)
	case errors.Is(err, keeper.ErrStale):
		return fmt.Errorf("data_dir %s: %w: make the directory writable, or remove its keeper.sock", dir, err)
	}
	return err
}

// keptAs stands for what must be the same in two processes of which one begins with the other's memory.
func keptAs(mode string, nodeSecret []byte) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "rdmakv kept memory 1\n%s\n%x", mode, nodeSecret))
	return binary.LittleEndian.Uint64(sum[:])
}
