package server

import (
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// put hands a small put to the store. Key and value stay where they arrived:
// the receive buffer belongs to the store until written is called.
func (r *request) put() {
	m, err := wire.ParsePut(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	r.submitNow(store.Write{Key: m.Key, Value: m.Value})
}

// delete hands a delete to the store. It runs on the pool, because the store
// may have to ask the disk whether the key exists.
func (r *request) delete() {
	m, err := wire.ParseDelete(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	r.submit(store.Write{Key: m.Key, Op: store.OpDelete})
}

// submit orders a write; written answers it.
func (r *request) submit(w store.Write) {
	srv := r.s.srv
	w.Shard = cluster.ShardOf(w.Key, srv.shards)
	w.User, w.Done = r, written
	r.write = w
	if err := srv.store.Submit(&r.write); err != nil {
		r.stage.release()
		r.refuse(err)
	}
}

// submitNow is submit on the lane, which must not wait: a put for which memory
// has to be registered first is parked.
func (r *request) submitNow(w store.Write) {
	srv := r.s.srv
	w.Shard = cluster.ShardOf(w.Key, srv.shards)
	w.User, w.Done, w.NoWait = r, written, true
	r.write = w
	r.resubmit()
}

// resubmit orders the write, or parks it.
func (r *request) resubmit() {
	switch err := r.s.srv.store.Submit(&r.write); {
	case errors.Is(err, store.ErrGrowing):
		if !r.s.srv.grow.park(r) {
			r.refuse(store.ErrClosed)
		}
	case err != nil:
		r.refuse(err)
	}
}

// written is the store's callback: the write is durable and visible. It runs
// on the store's publishing goroutine, so it only queues the reply; the
// session is flushed once for the whole group.
func written(w *store.Write) {
	r := w.User.(*request)
	s, stage := r.s, r.stage
	if w.Err != nil {
		r.refuse(w.Err)
	} else {
		version, existed := uint64(w.Version), w.Existed
		r.confirm(func(dst []byte) []byte {
			if r.hdr.Type == wire.TypeDelete {
				if !existed {
					version = 0
				}
				return wire.AppendWriteReply(dst, r.hdr.Type, r.hdr.ID, wire.WriteReply{Version: version, Applied: true, Existed: existed})
			}
			return wire.AppendWriteReply(dst, r.hdr.Type, r.hdr.ID, wire.WriteReply{Version: version, Applied: true})
		})
	}
	stage.release()
	s.srv.wrote(s)
}

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
