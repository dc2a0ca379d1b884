package server

import (
	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/store"
)

// startControl opens the socket through which the node's operator asks for
// backups. A node that cannot have one serves all the same.
func (srv *Server) startControl() {
	if srv.cfg.Mode == store.Cache || srv.cfg.FS != nil {
		return // no directory that other programs could see
	}
	var err error
	if srv.control, err = control.Serve(srv.cfg.DataDir, srv.store, srv.cfg.Logger); err != nil {
		srv.cfg.Logger.Warn("no backups while this server runs: the control socket cannot be opened", "err", err)
	}
}

// stopControl closes it.
func (srv *Server) stopControl() {
	if srv.control != nil {
		if err := srv.control.Close(); err != nil {
			srv.cfg.Logger.Warn("control socket", "err", err)
		}
	}
}
