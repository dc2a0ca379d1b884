package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// batch hands a batch that came in the message to the store. Its keys and
// values stay where they arrived.
func (r *request) batch() {
	m, err := wire.ParseBatch(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	if w, ok := r.batchWrite(m.ID, m.Parts); ok {
		r.submitNow(w)
	}
}

// batchWrite makes one write of the parts. false: it was refused.
func (r *request) batchWrite(id wire.RequestID, parts wire.BatchParts) (w store.Write, ok bool) {
	if w.ID, ok = r.requestID(id); !ok {
		return w, false
	}
	switch n := parts.Count(); {
	case n == 0:
		r.fail(wire.StatusBadBatch, "a batch without parts")
		return w, false
	case n > wire.MaxBatchParts:
		r.fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d parts: at most %d", n, wire.MaxBatchParts))
		return w, false
	}
	w.Op, w.Parts = store.OpBatch, make([]store.Part, 0, parts.Count())
	for p := range parts.All {
		if !r.mayKey(p.Key) || !r.sane(p.If, p.IfVersion, p.TTLMicros) {
			return w, false
		}
		shard := cluster.ShardOf(p.Key, r.s.srv.shards)
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
func (r *request) batchLarge() {
	m, err := wire.ParseBatchLarge(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	switch {
	case m.Count == 0 || m.Count > wire.MaxBatchParts:
		r.fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d parts: want 1 to %d", m.Count, wire.MaxBatchParts))
		return
	case m.Length > wire.MaxBatchBytes:
		r.fail(wire.StatusBadBatch, fmt.Sprintf("a batch of %d bytes: at most %d", m.Length, wire.MaxBatchBytes))
		return
	case m.Addr+uint64(m.Length) < m.Addr:
		r.violation(causeBody, fmt.Errorf("batch of %d bytes at %#x wraps around", m.Length, m.Addr))
		return
	}
	if r.takeMore(uint64(m.Length)) {
		go r.rendezvousBatch(m)
	}
}

// rendezvousBatch runs on a goroutine of its own.
func (r *request) rendezvousBatch(m wire.BatchLarge) {
	s := r.s
	defer s.flush()
	stage, err := r.fetch(remoteValue{rkey: m.RKey, addr: m.Addr, size: uint64(m.Length), checksum: m.Checksum})
	switch {
	case errors.Is(err, errFetch):
		r.drop()
		return
	case err != nil:
		r.refuse(err)
		return
	}
	// The server's own copy, which nobody else can change, is what is parsed.
	parts, err := wire.ParseBatchParts(stage.bytes(), m.Count)
	if err != nil {
		stage.release()
		r.violation(causeBody, err)
		return
	}
	w, ok := r.batchWrite(m.ID, parts)
	if !ok {
		stage.release()
		return
	}
	r.stage = stage
	r.submit(w)
}
