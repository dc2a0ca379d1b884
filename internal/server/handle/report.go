package handle

import (
	"fmt"
	"math"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// report takes in what a client has seen of memory that this side cannot see:
// how often keys are read, and damage. It runs on the lane; the store takes
// both without waiting. Neither is believed: touches are weights of a guess
// about what to keep, and damage is looked at by the store itself.
func (r *op) report(m wire.Report, by judge) {
	env := r.c.env
	r.c.touched(m.Touches)
	for d := range m.Damages {
		if !by.tells(d.Key, d.Shard) {
			continue
		}
		env.Counters.DamageReports.Add(1)
		env.Store.Damaged(d.Shard, d.Key, layout.Place(d.Place), layout.Version(d.Version))
	}
	r.Answer(session.SmallReply, func(dst []byte) []byte { return wire.AppendReportReply(dst, r.Header.ID) })
}

// tells says whether what is told of a key is taken in: the login may name the key,
// and the shard is one of this store.
func (by judge) tells(key []byte, shard uint16) bool {
	s := by.r.Session
	return int(shard) < by.r.c.env.Shards && len(key) > 0 && len(key) <= maxKey && s.Login.MayName(key)
}

// touchEvery is how often the touches of one session are taken; what comes in
// between is left aside, for it costs the lane time that others want.
const touchEvery = int64(20 * time.Millisecond)

// touched hands reads that the client has counted to the store. It does not
// wait.
func (c *conn) touched(list wire.Touches) {
	env := c.env
	n, now := list.Len(), env.Clock.Now()
	// A client without the right to READ has read nothing that the server did not see.
	if n == 0 || now < c.nextTouches.Load() || !c.s.OneSided {
		return
	}
	c.nextTouches.Store(now + touchEvery)
	env.Counters.Touches.Add(uint64(n))
	touches := make([]store.Touch, n)
	for i := range touches {
		t := list.At(i)
		touches[i] = store.Touch{Hash: t.Hash, Count: uint8(min(t.Count, math.MaxUint8))}
	}
	env.Store.Touched(touches)
}

// ping answers the keepalive and takes back the credits it returns.
func (o *op) ping(m wire.Ping) {
	s, store := o.Session, o.c.env.Store
	if err := s.GiveBack(int32(m.Return)); err != nil {
		o.Violation(base.CauseCredits, err)
		return
	}
	if m.View > store.ViewVersion() {
		o.Violation(base.CauseBody, fmt.Errorf("a view of version %d, which it cannot have", m.View))
		return
	}
	if s.Keeps(o.Begun) {
		o.Drop()
		return
	}
	o.c.follower.Uses(m.View)
	o.c.touched(m.Touches)
	o.Answer(session.SmallReply, func(dst []byte) []byte {
		return wire.AppendPingReply(dst, o.Header.ID, wire.PingReply{
			Echo: m.Echo, TimeMicros: uint64(store.Now().UnixMicro()), ViewVersion: store.ViewVersion(), Touches: store.WantsTouches(),
		})
	})
}
