package server

import (
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// startRotation begins to renew the rkeys of all regions of this space. It fails
// with errRotating, and when the Server does not serve.
func (srv *Server) startRotation() error {
	if !srv.Ready() {
		return errNotServing
	}
	return srv.turnover.Start()
}

// rotationStat is how far it is.
func (srv *Server) rotationStat() RotationStat {
	st := srv.turnover.Stat()
	if st.Space = srv.space; st.Space == "" {
		st.Space = auth.MainSpace
	}
	return st
}

// adminRotate begins a rotation in every space of the node, or tells how far
// they are.
func (srv *Server) adminRotate(by Asker, name string) (any, error) {
	switch name {
	case "status":
	case "", "start":
		// All or none: what runs already is not begun again.
		for _, sp := range srv.spaces.every() {
			if sp.rotationStat().Running {
				return nil, base.Refuse(wire.StatusOverloaded, "%v: ask for its status, and again when it is over", memory.ErrRotating)
			}
		}
		srv.log.Info("rotation of rkeys asked for", "peer", by.Peer)
		for _, sp := range srv.spaces.every() {
			if err := sp.startRotation(); err != nil && sp == srv {
				return nil, base.Refuse(wire.StatusOverloaded, "%v", err)
			}
		}
	default:
		return nil, base.Refuse(wire.StatusBadRequest, "%q: start or status", name)
	}
	var answer struct {
		Running bool           `json:"running"`
		Spaces  []RotationStat `json:"spaces"`
	}
	for _, sp := range srv.spaces.every() {
		if !sp.serving.Load() {
			continue
		}
		st := sp.rotationStat()
		answer.Running = answer.Running || st.Running
		answer.Spaces = append(answer.Spaces, st)
	}
	return answer, nil
}
