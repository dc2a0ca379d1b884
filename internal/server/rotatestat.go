package server

import (
	"context"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// adminRotate begins a rotation in every space of the node, or tells how far
// they are.
func (srv *Server) adminRotate(_ context.Context, s *session, name string) (any, error) {
	switch name {
	case "status":
	case "", "start":
		// All or none: what runs already is not begun again.
		for _, sp := range srv.everySpace() {
			if sp.rotationStat().Running {
				return nil, refuseAdmin(wire.StatusOverloaded, "%v: ask for its status, and again when it is over", errRotating)
			}
		}
		srv.log.Info("rotation of rkeys asked for", "peer", s.peer)
		for _, sp := range srv.everySpace() {
			if err := sp.startRotation(); err != nil && sp == srv {
				return nil, refuseAdmin(wire.StatusOverloaded, "%v", err)
			}
		}
	default:
		return nil, refuseAdmin(wire.StatusBadRequest, "%q: start or status", name)
	}
	var answer struct {
		Running bool           `json:"running"`
		Spaces  []RotationStat `json:"spaces"`
	}
	for _, sp := range srv.everySpace() {
		if !sp.serving.Load() {
			continue
		}
		st := sp.rotationStat()
		answer.Running = answer.Running || st.Running
		answer.Spaces = append(answer.Spaces, st)
	}
	return answer, nil
}
