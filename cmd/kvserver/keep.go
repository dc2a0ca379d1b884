package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
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

// keepMemory connects to the keeper of this node. A node that cannot have one says why, and begins empty at its next start.
func (a *app) keepMemory(ctx context.Context, cfg *server.Config, nodeSecret []byte, log *slog.Logger) *keeper.Client {
	keep := time.Duration(a.cfg.MemoryKeep)
	if keep == 0 {
		return nil
	}
	program, err := os.Executable()
	var client *keeper.Client
	var left map[string]int
	if err == nil {
		// What an upgrade has replaced is named "... (deleted)".
		client, left, err = keeper.Start(ctx, cfg.DataDir, keep, strings.TrimSuffix(program, " (deleted)"), keepCommand)
	}
	if err != nil {
		log.Warn("memory is not kept for the next start: this one begins empty, and so will the next", "data_dir", cfg.DataDir, "err", err)
		return nil
	}
	cfg.Keeping = &server.Keeping{Keeper: client, Left: left}
	cfg.KeptAs = keptAs(a.cfg.Mode, nodeSecret)
	log.Info("memory is kept for the next start", "data_dir", cfg.DataDir, "memory_keep", keep, "kept_before", max(0, len(left)-1))
	return client
}

// keptAs stands for what must be the same in two processes of which one begins with the other's memory.
func keptAs(mode string, nodeSecret []byte) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "rdmakv kept memory 1\n%s\n%x", mode, nodeSecret))
	return binary.LittleEndian.Uint64(sum[:])
}
