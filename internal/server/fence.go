package server

// How a node is fenced: once it cannot promise what it is to promise, because its store
// has failed, a lane or a device did for good, or another process is this node, it
// answers nobody any more and has to end. A store that has failed calls back for
// nothing and cannot be closed; one that is well (standDown) does and can.

// Err is nil while the node works. Afterwards it says why durability is gone,
// or why the fabric is; the process must then end.
func (srv *Server) Err() error {
	select {
	case <-srv.fenced:
		return srv.fenceErr
	default:
		return nil
	}
}

// Fatal is closed when Err becomes non-nil.
func (srv *Server) Fatal() <-chan struct{} { return srv.fenced }

// storeFailed is the store's OnFatal, which is called once: the store calls back for
// none of the writes that it has. It comes behind standDown where the disk fails while
// a node stands down.
func (srv *Server) storeFailed(err error) {
	close(srv.storeDown)
	srv.fatal(err)
}

// storeWell says whether the store can be closed.
func (srv *Server) storeWell() bool {
	select {
	case <-srv.storeDown:
		return false
	default:
		return srv.Err() == nil || srv.stoodDown.Load()
	}
}

// fatal fences the node: no beat, no handler, no session. It must not call the store.
func (srv *Server) fatal(err error) {
	srv.fence.Do(func() {
		srv.fenceErr = err
		srv.draining.Store(true)
		close(srv.fenced)
		srv.log.Error(limitNone, "fatal: this node stops serving", "err", err)
		srv.stopBeat() // each session ends by itself, see watch
	})
}
