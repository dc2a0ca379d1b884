package server

import (
	"bytes"
	"math"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// report takes in what a client has seen of memory that this side cannot see:
// how often keys are read, and damage. It runs on the lane; the store takes
// both without waiting. Neither is believed: touches are weights of a guess
// about what to keep, and damage is looked at by the store itself.
func (r *request) report() {
	m, err := wire.ParseReport(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	srv := r.s.srv
	r.s.touched(m.Touches)
	for d := range m.Damages {
		if int(d.Shard) >= srv.shards || len(d.Key) == 0 || len(d.Key) > maxKey || !bytes.HasPrefix(d.Key, r.s.login.prefix) {
			continue
		}
		srv.met.damageReports.Add(1)
		srv.store.Damaged(d.Shard, d.Key, layout.Place(d.Place), layout.Version(d.Version))
	}
	r.answer(smallReply, func(dst []byte) []byte { return wire.AppendReportReply(dst, r.hdr.ID) })
}

// touchEvery is how often the touches of one session are taken; what comes in
// between is left aside, for it costs the lane time that others want.
const touchEvery = int64(20 * time.Millisecond)

// touched hands reads that the client has counted to the store. It does not
// wait.
func (s *session) touched(list wire.Touches) {
	n, now, srv := list.Len(), s.srv.now(), s.srv
	// Who has not the right to READ has read nothing that the server did not see.
	if n == 0 || now < s.nextTouches.Load() || !s.login.oneSided {
		return
	}
	s.nextTouches.Store(now + touchEvery)
	srv.met.touches.Add(uint64(n))
	touches := make([]store.Touch, n)
	for i := range touches {
		t := list.At(i)
		touches[i] = store.Touch{Hash: t.Hash, Count: uint8(min(t.Count, math.MaxUint8))}
	}
	srv.store.Touched(touches)
}
