package server

import "context"

// wrote notes that s has replies of the group being published.
func (srv *Server) wrote(s *session) {
	srv.groupMu.Lock()
	defer srv.groupMu.Unlock()
	if !s.grouped {
		s.grouped = true
		srv.group = append(srv.group, s)
	}
}

// flushGroup posts the replies of a published group, with one doorbell for
// each session. It is the store's OnGroup and runs on the publishing goroutine,
// which must get back to publishing: a few sessions are served here, because
// waking another goroutine costs a lone writer more than the doorbell; more
// are left to the flusher.
func (srv *Server) flushGroup() {
	srv.groupMu.Lock()
	n := len(srv.group)
	var few [2]*session
	if n <= len(few) {
		for i, s := range srv.group {
			few[i] = s
			s.grouped = false
		}
		clear(srv.group)
		srv.group = srv.group[:0]
	}
	srv.groupMu.Unlock()
	if n <= len(few) {
		for _, s := range few[:n] {
			s.flush()
		}
		return
	}
	select {
	case srv.groupWake <- struct{}{}:
	default: // it is awake already and will look again
	}
}

// flushLoop posts the replies of large groups until ctx ends.
func (srv *Server) flushLoop(ctx context.Context) {
	defer srv.wg.Done()
	var batch []*session
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.groupWake:
		}
		srv.groupMu.Lock()
		batch, srv.group = srv.group, batch[:0]
		for _, s := range batch {
			s.grouped = false
		}
		srv.groupMu.Unlock()
		for _, s := range batch {
			s.flush()
		}
		clear(batch)
	}
}
