package server

import (
	"context"

	"github.com/rdmakv/rdmakv/internal/wire"
)

var (
	descRenewed = newDesc("rkeys_renewed_total", "Regions that got a new rkey.")
	descOldKeys = newDesc("rkeys_old", "Old registrations that wait until nobody can use them.")
	descBehind  = newDesc("rkeys_sessions_waited_for", "Sessions that may still use them.")
	descGone    = newDesc("regions_given_back_total", "Regions without items that were given back.")
)

// turnover shows how rkeys and regions change.
func (c collector) turnover(out sink) {
	out.counter(descRenewed, float64(c.srv.regions.renewed.Load()))
	out.counter(descGone, float64(c.srv.regions.gone.Load()))
	st := c.srv.rotationStat()
	out.gauge(descOldKeys, float64(st.Old))
	out.gauge(descBehind, float64(st.Waiting))
}

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
