package server

import (
	"strings"

	"github.com/rdmakv/rdmakv/internal/server/base"
)

// How a space is fenced: once it cannot promise what it is to promise, because its store
// has failed, a lane or a device did for good, or another process is this node, it
// answers nobody any more. A node is fenced with its main space, and has to end.

// Err is nil while the node works. Afterwards it says why durability is gone,
// or why the fabric is; the process must then end.
func (srv *Server) Err() error { return srv.main.Err() }

// Fatal is closed when Err becomes non-nil.
func (srv *Server) Fatal() <-chan struct{} { return srv.main.fence.Done() }

// standDown fences a node whose stores are well: all its spaces end.
func (srv *Server) standDown(err error) {
	for _, sp := range srv.spaces.every() {
		if sp.Err() == nil {
			sp.stopServing(sp.fence.StandDown, err)
		}
	}
}

// Err is nil while the space works. Afterwards it says why durability is gone, or why
// the fabric is.
func (sp *Space) Err() error { return sp.fence.Err() }

// storeFailed is the store's OnFatal, which is called once: the store calls back for
// none of the writes that it has. It comes behind standDown where the disk fails while
// a node stands down.
func (sp *Space) storeFailed(err error) {
	sp.fence.LoseStore()
	sp.fatal(err)
}

// fatal fences the space: no beat, no handler, no session. It must not call the store.
func (sp *Space) fatal(err error) { sp.stopServing(sp.fence.Fail, err) }

func (sp *Space) stopServing(fence func(error) bool, err error) {
	sp.draining.Store(true)
	if fence(err) {
		sp.log.Error(base.LogAlways, "fatal: this node stops serving", "err", err)
		sp.stopBeat() // each session ends by itself, see watch
	}
}

// Ending says what Shutdown waits for, in the node and in each space; empty before
// Shutdown and after it. Safe for concurrent use, and it waits for nothing itself.
func (srv *Server) Ending() string {
	var list []string
	for _, w := range [...]*base.WaitsFor{&srv.ending, &srv.main.ending} {
		if what := w.Get(); what != "" {
			list = append(list, what)
		}
	}
	list = append(list, srv.spaces.ending()...)
	return strings.Join(list, "; ")
}
