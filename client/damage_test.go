package client_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// damagedServer is a fake whose one item has a wrong bit in its value, and which
// answers by SEND and collects reports.
func damagedServer(t *testing.T) (*clienttest.Server, *client.Client, chan wire.Damage, *atomic.Int64) {
	f, _, c := newOneSided(t)
	reports, asked := make(chan wire.Damage, 100), new(atomic.Int64)
	f.OnRequest = func(h wire.Header, msg []byte) (out []byte, handled bool) {
		switch h.Type {
		case wire.TypeGet:
			asked.Add(1)
			out = wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 1, Value: []byte("one")})
		case wire.TypeReport:
			m, err := wire.ParseReport(wire.Body(msg))
			if err != nil {
				t.Error(err)
			}
			for d := range m.Damages {
				d.Key = append([]byte(nil), d.Key...)
				reports <- d
			}
			out = wire.AppendReportReply(nil, h.ID)
		default:
			return nil, false
		}
		wire.SetCredits(out, 1)
		return out, true
	}
	return f, c, reports, asked
}

func flip(mem []byte) {
	mem[placeA.Byte()+uint64(layout.ItemSize(len(fakeKey), 3, false))-8] ^= 4
}

// A damaged item is not believed. The server is asked, and told where it is.
func TestDamageIsReported(t *testing.T) {
	f, c, reports, asked := damagedServer(t)
	f.Change(flip)
	mustGet(t, c, "one")
	if asked.Load() != 1 {
		t.Fatalf("asked %d times", asked.Load())
	}
	select {
	case d := <-reports:
		if layout.Place(d.Place) != placeA || d.Version != 1 || d.Shard != 0 || string(d.Key) != string(fakeKey) {
			t.Errorf("%+v", d)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no report")
	}
	// The same place is not reported again and again.
	for range 10 {
		mustGet(t, c, "one")
	}
	clienttest.Eventually(t, "the suspects were looked at", func() bool { return rt(c).Only().Current().Usage().Suspects == 0 })
	if n := c.Counters().Damaged; n != 1 || len(reports) != 0 {
		t.Errorf("%d damages told", n)
	}
	settled(t, c)
}

// What does not verify because it is being written is no damage.
func TestTornIsNoDamage(t *testing.T) {
	f, c, reports, _ := damagedServer(t)
	reads := 0
	f.Change(func(mem []byte) {
		flip(mem)
		f.OnRead = func(place uint64, dst []byte) { // other bytes each time
			copy(dst, f.Mem[place:])
			if place == placeA.Byte() {
				reads++
				dst[layout.ItemHeaderSize] ^= byte(reads)
			}
		}
	})
	looked := func() int {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		return reads
	}
	mustGet(t, c, "one")
	// Each READ of the item by the get was torn, and counted; what comes beyond
	// them is the keeper's, which may have looked before the get was answered.
	met := int(c.Counters().Retries.Torn)
	clienttest.Eventually(t, "the item was looked at again", func() bool { return looked() >= met+2 && rt(c).Only().Current().Usage().Suspects == 0 })
	time.Sleep(4 * session.LookRest)
	if n := c.Counters().Damaged; n != 0 || len(reports) != 0 {
		t.Errorf("%d damages told", n)
	}
}

// The server is told of hits that it cannot see: of each of a few, and of a
// sample of many that stands for all.
func TestTouchesAreReported(t *testing.T) {
	f, _, c := newOneSided(t)
	rt(c).Only().Current().Touches.Want(true) // as Welcome may say
	var total atomic.Int64
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypePing {
			return nil, false
		}
		m, err := wire.ParsePing(wire.Body(msg))
		if err != nil {
			t.Error(err)
		}
		for i := range m.Touches.Len() {
			touch := m.Touches.At(i)
			if touch.Hash != layout.HashKey(42, fakeKey).Hi {
				t.Errorf("%+v", touch)
			}
			total.Add(int64(touch.Count))
		}
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{Echo: m.Echo, Touches: true}), true
	}
	const few = 20
	for range few {
		mustGet(t, c, "one")
	}
	clienttest.Eventually(t, "each of a few hits is told", func() bool { return total.Load() == few })
	const many = 200_000
	for range many {
		mustGet(t, c, "one")
	}
	clienttest.Eventually(t, "the sample stands for all hits", func() bool { n := total.Load(); return n > many/3 && n < many*3 })
	if n := c.Counters().Reports; n > 1000 {
		t.Errorf("%d reports of %d hits", n, many)
	}
	t.Logf("%d hits, told as %d with %d reports", many+few, total.Load(), c.Counters().Reports)
}

// A server that has room for everything is not told of anything; what it says in
// a reply to a Ping changes that.
func TestTouchesThatAreNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, c := newOneSided(t)
		var told atomic.Int64
		var wanted atomic.Bool
		f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypePing {
				return nil, false
			}
			m, err := wire.ParsePing(wire.Body(msg))
			if err != nil {
				t.Error(err)
			}
			told.Add(int64(m.Touches.Len()))
			return wire.AppendPingReply(nil, h.ID, wire.PingReply{Echo: m.Echo, Touches: wanted.Load()}), true
		}
		for start := time.Now(); time.Since(start) < 3*time.Second/2; { // touches that are wanted go after a second
			mustGet(t, c, "one")
			time.Sleep(time.Millisecond)
		}
		if n := c.Counters().Reports; n != 0 || told.Load() != 0 {
			t.Errorf("%d reports of %d keys to a server that does not want any", n, told.Load())
		}
		wanted.Store(true)
		if _, err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		clienttest.Eventually(t, "the server is told when it wants to be", func() bool {
			mustGet(t, c, "one")
			return told.Load() > 0
		})
	})
}
