package main

import (
	"fmt"
	"log/slog"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server"
)

// filePlan shares out the descriptors of a node, so that no number of connections
// leaves the store without one: a store that cannot make a file ends its node.
type filePlan struct {
	Limit      int // of open files
	Store      int // files that the store of the node keeps open
	SpaceStore int // that the store of a space does
	Pending    int // connections of one fabric that have not sent their request
	Sessions   int // connections beyond that, those being set up included
}

// These are what a node opens beside the files that stores keep and connections of
// clients, and how many of those it has at least and at most.
const (
	fileReserve   = 256 // listeners, admin port, regions as memfds, devices, files being written
	gossipReserve = 256 // streams of gossip
	spaceReserve  = 32  // of each space, beside the files of its store

	minStoreFiles, maxStoreFiles, maxSpaceFiles = 64, 4096, 256
	minPending, maxPending                      = 16, 1024
	minSessions                                 = 64
)

// pendingConns is how many connections that have not sent their request one fabric may
// keep under a limit of open files.
func pendingConns(limit int) int { return min(maxPending, max(minPending, limit/16)) }

// planFiles makes the plan for a limit. It returns false if the limit is too low, and
// need is a limit that will do.
func planFiles(limit int, gossip bool, spaces int) (p filePlan, need int, ok bool) {
	for need = limit; ; need = need&^63 + 64 {
		if p, ok = splitFiles(need, gossip, spaces); ok {
			return p, need, need == limit
		}
	}
}

func splitFiles(limit int, gossip bool, spaces int) (filePlan, bool) {
	left := limit - fileReserve - spaces*spaceReserve
	if gossip {
		left -= gossipReserve
	}
	p := filePlan{Limit: limit, Pending: pendingConns(limit)}
	p.Store = min(maxStoreFiles, max(minStoreFiles, left/4))
	p.SpaceStore = min(maxSpaceFiles, max(minStoreFiles, left/4/max(1, spaces)))
	// Two fabrics have pending connections, and as many may be on their way out.
	p.Sessions = left - p.Store - spaces*p.SpaceStore - 3*p.Pending
	return p, p.Sessions >= minSessions
}

// boundFiles bounds connections and the store's files by the limit of open files, so
// that connections, which any host can open, never leave the store without a file.
func boundFiles(cfg *server.Config, log *slog.Logger) error {
	limit, err := machine.OpenFiles()
	if err != nil {
		log.Info("the limit of open files is unknown", "err", err)
		return nil
	}
	// A space of its own is a store of its own, with files of its own; tenants that
	// share a space, or have a prefix in the main one, need none.
	spaces := 0
	for _, t := range cfg.Tenants {
		if t.Prefix == "" && (t.Space == "" || t.Space == "own") {
			spaces++
		}
	}
	plan, need, ok := planFiles(limit, cfg.Cluster != nil, spaces)
	if !ok {
		return fmt.Errorf("the limit of open files is %d: this node needs %d at least (ulimit -n; LimitNOFILE= of systemd)", limit, need)
	}
	cfg.MaxOpenFiles, cfg.SpaceOpenFiles, cfg.MaxConnections = plan.Store, plan.SpaceStore, plan.Sessions
	if plan.Sessions < cfg.MaxSessions {
		log.Warn("the limit of open files (ulimit -n; LimitNOFILE= of systemd) is too low for max_sessions: fewer clients are let in",
			"limit", limit, "max_sessions", cfg.MaxSessions, "let_in", plan.Sessions, "store_files", plan.Store)
	}
	return nil
}
