package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// What the operator of a node asks for over a session: an operation and a name,
// answered with a JSON text, in pages.

// An adminFunc does one operation for the node srv, asked for by session s. It
// runs on a pool and may wait, but not for long: what takes seconds is begun, and
// asked for again. The answer is turned into JSON. An error is told to the
// operator: an *adminRefusal as it says, others as for every request. ctx ends
// with the session.
type adminFunc func(srv *Server, ctx context.Context, s *session, name string) (any, error)

// adminOps is the table of what there is.
var adminOps = [wire.MaxAdminOps]adminFunc{
	wire.AdminRotate: (*Server).adminRotate,
}

// An adminRefusal says why an operation is not done.
type adminRefusal struct {
	st   wire.Status
	text string
}

func (e *adminRefusal) Error() string { return e.text }

// refuseAdmin is what an adminFunc returns when it does not do it.
func refuseAdmin(st wire.Status, format string, args ...any) error {
	return &adminRefusal{st, fmt.Sprintf(format, args...)}
}

// adminOp answers an Admin. It runs on the pool.
func (r *request) adminOp() {
	m, err := wire.ParseAdmin(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	s.mu.Lock()
	text := s.adminText
	s.mu.Unlock()
	if m.Offset == 0 {
		if text, err = s.srv.doAdmin(s, m.Op, string(m.Name)); err != nil {
			if no, ok := err.(*adminRefusal); ok {
				r.fail(no.st, no.text)
			} else {
				r.refuse(err)
			}
			return
		}
	}
	if uint64(m.Offset) > uint64(len(text)) {
		r.fail(wire.StatusBadRequest, "offset is beyond the text")
		return
	}
	part := text[m.Offset:]
	part = part[:min(len(part), s.replySize-wire.AdminFixed)]
	s.mu.Lock()
	// Kept only for a client that has not seen its end.
	if s.adminText = text; int(m.Offset)+len(part) == len(text) {
		s.adminText = nil
	}
	s.mu.Unlock()
	r.answer(wire.AdminFixed+len(part), func(dst []byte) []byte {
		return wire.AppendAdminReply(dst, r.hdr.ID, wire.AdminReply{
			Total: uint32(len(text)), Offset: m.Offset, Data: part,
		})
	})
}

// doAdmin does an operation. It is the node's, whatever space the session is in.
func (srv *Server) doAdmin(s *session, op wire.AdminOp, name string) ([]byte, error) {
	if do := loginOp(op); do != nil {
		answer, err := do(srv.root, name)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
	if int(op) >= len(adminOps) || adminOps[op] == nil {
		return nil, refuseAdmin(wire.StatusUnsupported, "%v: this server does not know it", op)
	}
	answer, err := adminOps[op](srv.root, s.ctx, s, name)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}
