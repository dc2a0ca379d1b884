package handle

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// batch hands a batch that came in the message to the store. Its keys and
// values stay where they arrived.
func (r *op) batch(m wire.Batch, by judge) {
	if w, ok := by.write(m.ID, m.Parts); ok {
		r.submitNow(w)
	}
}

// write makes one write of the parts, each of which is judged. false: it was refused.
func (by judge) write(id wire.RequestID, parts wire.BatchParts) (w store.Write, ok bool) {
	r := by.r
	if w.ID, ok = r.requestID(id); !ok {
		return w, false
	}
	switch n := parts.Count(); {
	case n == 0:
		r.Fail(wire.StatusBadBatch, "a batch without parts")
		return w, false
	case n > wire.MaxBatchParts:
		r.Fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d parts: at most %d", n, wire.MaxBatchParts))
		return w, false
	}
	w.Kind, w.Parts = store.OpBatch, make([]store.Part, 0, parts.Count())
	for p := range parts.All {
		if layout.IsPartKey(p.Key) {
			return w, reserved(r)
		}
		if layout.IsHead(p.Value) && !p.Delete {
			r.Fail(wire.StatusBadRequest, "a value that begins as the head of one in parts does, in a batch")
			return w, false
		}
		if !r.mayName(p.Key) {
			return w, false
		}
		if why := insane(p.If, p.IfVersion, p.TTLMicros); why != "" {
			r.Fail(wire.StatusBadRequest, why)
			return w, false
		}
		shard := cluster.ShardOf(p.Key, r.c.env.Shards)
		if len(w.Parts) == 0 {
			if w.Shard = shard; !r.ours(shard) {
				return w, false
			}
		}
		if shard != w.Shard {
			r.refuse(store.ErrCrossShard)
			return w, false
		}
		w.Parts = append(w.Parts, store.Part{
			Key: p.Key, Value: p.Value, Delete: p.Delete,
			If: store.Cond(p.If), IfVersion: layout.Version(p.IfVersion), TTL: time.Duration(p.TTLMicros) * time.Microsecond,
		})
	}
	return w, true
}

// batchLarge begins a batch whose parts are READ from the client's memory, as
// the value of a large put is.
func (r *op) batchLarge(m wire.BatchLarge, by judge) {
	switch {
	case m.Count == 0 || m.Count > wire.MaxBatchParts:
		r.Fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d parts: want 1 to %d", m.Count, wire.MaxBatchParts))
		return
	case m.Length > wire.MaxBatchBytes:
		r.Fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d bytes: at most %d", m.Length, wire.MaxBatchBytes))
		return
	case m.Addr+uint64(m.Length) < m.Addr:
		r.Violation(base.CauseBody, fmt.Errorf("batch of %d bytes at %#x wraps around", m.Length, m.Addr))
		return
	}
	if r.TakeMore(uint64(m.Length)) {
		go r.rendezvousBatch(m, by)
	}
}

// rendezvousBatch runs on a goroutine of its own.
func (r *op) rendezvousBatch(m wire.BatchLarge, by judge) {
	s := r.Session
	defer s.Flush()
	stage, err := r.fetch(session.Remote{RKey: m.RKey, Addr: m.Addr, Size: uint64(m.Length)}, m.Checksum, nil)
	switch {
	case errors.Is(err, session.ErrFetch):
		r.Drop()
		return
	case err != nil:
		r.refuse(err)
		return
	}
	// What is parsed is the server's own copy, because the client can change its memory.
	parts, err := wire.ParseBatchParts(stage.Bytes(), m.Count)
	if err != nil {
		stage.Release()
		r.Violation(base.CauseBody, err)
		return
	}
	w, ok := by.write(m.ID, parts)
	if !ok {
		stage.Release()
		return
	}
	r.stage = stage
	r.submit(w)
}
