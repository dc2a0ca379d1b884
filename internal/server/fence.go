package server

import (
	"strings"

	"github.com/rdmakv/rdmakv/internal/server/base"
)

// How a node is fenced: once it cannot promise what it is to promise, because its store
// has failed, a lane or a device did for good, or another process is this node, it
// answers nobody any more and has to end.

// Err is nil while the node works. Afterwards it says why durability is gone,
// or why the fabric is; the process must then end.
func (srv *Server) Err() error { return srv.fence.Err() }

// Fatal is closed when Err becomes non-nil.
func (srv *Server) Fatal() <-chan struct{} { return srv.fence.Done() }

// storeFailed is the store's OnFatal, which is called once: the store calls back for
// none of the writes that it has. It comes behind standDown where the disk fails while
// a node stands down.
func (srv *Server) storeFailed(err error) {
	srv.fence.LoseStore()
	srv.fatal(err)
}

// fatal fences the node: no beat, no handler, no session. It must not call the store.
func (srv *Server) fatal(err error) { srv.stopServing(srv.fence.Fail, err) }

// standDown is fatal for a node whose stores are well: its spaces end with it.
func (srv *Server) standDown(err error) {
	for _, sp := range srv.spaces.every() {
		if sp.Err() == nil {
			sp.stopServing(sp.fence.StandDown, err)
		}
	}
}

func (srv *Server) stopServing(fence func(error) bool, err error) {
	srv.draining.Store(true)
	if fence(err) {
		srv.log.Error(base.LogAlways, "fatal: this node stops serving", "err", err)
		srv.stopBeat() // each session ends by itself, see watch
	}
}

// Ending says what Shutdown waits for, in the node and in each space; empty before
// Shutdown and after it. Safe for concurrent use, and it waits for nothing itself.
func (srv *Server) Ending() string {
	var list []string
	if what := srv.ending.Get(); what != "" {
		list = append(list, what)
	}
	if srv.root == srv && srv.spaces.mu.TryRLock() { // who hangs may hold it
		for name, sp := range srv.spaces.open {
			if what := sp.ending.Get(); what != "" {
				list = append(list, "space "+name+": "+what)
			}
		}
		srv.spaces.mu.RUnlock()
	}
	return strings.Join(list, "; ")
}
