package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

var turnovers = flag.Int("turnovers", 3, "rotations of all rkeys in TestTurnover")

// rotateRKeys has the node renew all rkeys, and waits until the old ones are gone.
func rotateRKeys(t *testing.T, c *client.Client) {
	t.Helper()
	type status struct {
		Running bool
		Spaces  []server.RotationStat
	}
	ask := func(name string) (st status) {
		text, err := admin.Of(c).Do(t.Context(), "", wire.AdminRotate, name)
		if err == nil {
			err = json.Unmarshal(text, &st)
		}
		if err != nil {
			t.Fatalf("rotate %s: %v", name, err)
		}
		return st
	}
	st := ask("start")
	deadline := time.Now().Add(2 * time.Minute)
	for st.Running {
		if time.Now().After(deadline) {
			t.Fatalf("the rotation does not end: %+v", st)
		}
		time.Sleep(10 * time.Millisecond)
		st = ask("status")
	}
	if sp := st.Spaces[0]; sp.Error != "" || sp.Renewed == 0 || sp.Renewed > sp.Regions {
		t.Fatalf("%+v", sp)
	}
}

// turnoverNode has short leases and small regions, and gives back those that are
// empty at once.
func turnoverNode(t *testing.T, start func(testing.TB, func(*server.Config)) *node.Node) *node.Node {
	return start(t, func(c *server.Config) {
		c.Lease, c.Beat, c.Keepalive, c.Idle = 300*time.Millisecond, 30*time.Millisecond, 200*time.Millisecond, 30*time.Second
		c.RegionSize, c.IndexRegionSize, c.RegionIdle = 4<<20, 1<<20, 100*time.Millisecond
	})
}

// turnoverLoad reads and writes all the time, in every way there is.
type turnoverLoad struct {
	t     *testing.T
	stop  chan struct{}
	wg    sync.WaitGroup
	reads atomic.Int64
	fails atomic.Int64
}

// run does f again and again. What fails, or is wrong, is a failure of the test.
func (l *turnoverLoad) run(what string, f func(i int) error) {
	l.wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			default:
			}
			if err := f(i); err != nil && l.fails.Add(1) < 5 {
				l.t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestTurnover: rkeys are renewed again and again, and regions come and go, while
// clients read: no get fails, no answer is wrong, and no connection is lost.
func TestTurnover(t *testing.T) {
	n := turnoverNode(t, node.Start)
	ctx := t.Context()
	admin, writer := dialNode(n, nil), dialNode(n, nil)
	reader := dialNode(n, func(c *client.Config) { c.LeaseKeep = time.Minute })
	quiet := dialNode(n, nil) // does nothing at all
	puts := dialNode(n, nil)  // reads nothing
	small := func(i int) []byte { return fmt.Appendf(nil, "small%d", i%100) }
	large := func(i int) []byte { return fmt.Appendf(nil, "large%d", i%3) }
	value := func(key []byte, n int) []byte { return bytes.Repeat(append(key, '.'), n/(len(key)+1)+1)[:n] }
	for i := range 100 {
		if err := writer.Put(ctx, small(i), value(small(i), 100+i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := writer.Put(ctx, large(i), value(large(i), 700<<10)); err != nil {
			t.Fatal(err)
		}
	}
	l := &turnoverLoad{t: t, stop: make(chan struct{})}
	for g := range 3 {
		l.run("get", func(i int) error {
			got, err := reader.Get(ctx, small(i+g))
			l.reads.Add(1)
			if err == nil && !bytes.Equal(got, value(small(i+g), 100+(i+g)%100)) {
				err = errors.New("a wrong value")
			}
			return err
		})
	}
	l.run("absent", func(i int) error {
		if _, err := reader.Get(ctx, fmt.Append(nil, "absent", i)); !errors.Is(err, client.ErrNotFound) {
			return fmt.Errorf("a key that never was: %v", err)
		}
		return nil
	})
	l.run("large", func(i int) error {
		got, err := reader.Get(ctx, large(i))
		if err == nil && !bytes.Equal(got, value(large(i), 700<<10)) {
			err = errors.New("a wrong value")
		}
		return err
	})
	l.run("multi", func(i int) error {
		results, err := reader.MultiGet(ctx, [][]byte{small(i), small(i + 7), large(i)})
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	// One key goes up and up: what is read is never older than what was read before.
	var seen uint64
	l.run("number", func(i int) error {
		err := writer.Put(ctx, []byte("number"), selfChecking(uint64(i+1), 64))
		return err
	})
	l.run("order", func(i int) error {
		got, err := reader.Get(ctx, []byte("number"))
		if errors.Is(err, client.ErrNotFound) && seen == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		v, err := checkValue(got)
		if v < seen {
			return fmt.Errorf("%d after %d", v, seen)
		}
		seen = v
		return err
	})
	// Regions come and go with these.
	fill := func() error {
		for k := range 12 {
			key := fmt.Append(nil, "churn", k)
			if err := puts.Put(ctx, key, value(key, 1<<20)); err != nil {
				return err
			}
		}
		return nil
	}
	empty := func() error {
		for k := range 12 {
			if _, err := puts.Delete(ctx, fmt.Append(nil, "churn", k)); err != nil {
				return err
			}
		}
		return nil
	}
	churn := &turnoverLoad{t: t, stop: make(chan struct{})}
	churn.run("churn", func(i int) error {
		if err := errors.Join(fill(), empty()); err != nil {
			return err
		}
		time.Sleep(700 * time.Millisecond) // longer than a lease and RegionIdle, mostly
		return nil
	})
	gone := regionsGone(t, admin)
	for range *turnovers {
		rotateRKeys(t, admin)
	}
	// A machine that is slow may not get round to give a region back before it is
	// used again. Now it has all the time that it needs; the others read on.
	close(churn.stop)
	churn.wg.Wait()
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	gone()
	if err := empty(); err != nil {
		t.Fatal(err)
	}
	clienttest.Eventually(t, "a region is given back", func() bool { return gone() > 0 })
	clienttest.Eventually(t, "enough was tried", func() bool {
		k := reader.Counters()
		return l.reads.Load() >= 100 && k.ViewRefreshes > 0 && k.OneSidedHits > 0
	})
	close(l.stop)
	l.wg.Wait()
	for name, c := range map[string]*client.Client{"admin": admin, "writer": writer, "reader": reader, "quiet": quiet, "puts": puts} {
		if k := c.Counters(); k.SessionsLost != 0 || k.Connects != 1 {
			t.Errorf("%s: %d connections, %d lost", name, k.Connects, k.SessionsLost)
		}
	}
	k := reader.Counters()
	t.Logf("%d gets, %d one-sided, %d absent, %d by SEND; %d views; %d regions gone; fallbacks %+v",
		k.Gets, k.OneSidedHits, k.OneSidedMisses, k.SendGets, k.ViewRefreshes, gone(), k.Fallbacks)
}

// TestReadsEndFirst: a client that has a newer view says so when what it has
// posted under the old one has completed, and not before.
func TestReadsEndFirst(t *testing.T) {
	n := turnoverNode(t, node.Soft)
	r := clienttest.NewRig("slow")
	c := rigged(n, []rdma.Fabric{r}, nil)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	s := rt(c).Only().Current()
	old := s.View()
	if s.UsedView() != old.Version {
		t.Fatalf("version %d in use, the view is %d", s.UsedView(), old.Version)
	}
	// READs are under way and their completions do not come; messages do.
	r.Set(func(r *clienttest.Rig) {
		r.Swallow = func(wc rdma.WC) bool { return wc.Op == rdma.OpRDMARead }
	})
	got := make(chan error, 1)
	go func() { got <- second(c.Get(context.Background(), []byte("k"))) }()
	clienttest.Eventually(t, "a READ is under way", func() bool { return old.InUse() })
	n.Server.Bump()
	clienttest.Eventually(t, "a newer view is in force", func() bool { return s.View().Version > old.Version })
	for range 3 { // Pings travel meanwhile
		if _, err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if told := s.Usage().ViewTold; told != old.Version {
		t.Errorf("the server was told that the views before %d are out of use, with READs of %d under way", told, old.Version)
	}
	r.Set(func(r *clienttest.Rig) { r.Swallow = nil })
	if err := <-got; err != nil {
		t.Error(err)
	}
	clienttest.Eventually(t, "the server is told", func() bool { return s.Usage().ViewTold > old.Version })
	if s.Usage().ViewsKept != 0 {
		t.Errorf("%d views are kept", s.Usage().ViewsKept)
	}
}

// TestBatchGoesByTheNewView: what was prepared under a view is posted by the one
// in force, place by place, and not at all where a place is gone.
func TestBatchGoesByTheNewView(t *testing.T) {
	n := turnoverNode(t, node.Start)
	c := dialNode(n, nil)
	s := rt(c).Only().Current()
	p := rt(c).Only().Begin(t.Context())
	old := s.View()
	kept, gone := s.NewReads(old), s.NewReads(old)
	kept.AddBeat()
	gone.AddBeat()
	lost := &session.View{View: *old.Clone()}
	lost.Version++
	lost.Remote = append(lost.Remote, old.Remote...)
	lost.Regions[0].Base += layout.PlaceOfByte(1 << 30) // nothing is where it was
	for i := range lost.Regions[1:] {
		lost.Regions[i+1].Base += layout.PlaceOfByte(1 << 30)
	}
	s.TakeView(lost)
	if _, err := gone.Run(&p); !errors.Is(err, base.ErrNoRegion) {
		t.Errorf("a READ of a place that is gone: %v", err)
	}
	gone.Release()
	if lost.InUse() || old.InUse() {
		t.Errorf("READs are counted (%v, %v), none is under way", old.InUse(), lost.InUse())
	}
	good := &session.View{View: *old.Clone(), Remote: old.Remote}
	good.Version += 2
	s.TakeView(good)
	if mine, err := kept.Run(&p); err != nil || !mine || kept.View != good {
		t.Errorf("a READ prepared under an old view: %v", err)
	}
	kept.Release()
	if s.UsedView() != good.Version {
		t.Errorf("version %d in use, of %d", s.UsedView(), good.Version)
	}
}

// regionsGone counts the regions that have left the table since the call.
func regionsGone(t *testing.T, c *client.Client) func() int {
	gone := 0
	known := map[uint32]bool{}
	return func() int {
		v, err := nodeOf(t, c).View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now := map[uint32]bool{}
		for _, r := range v.Regions {
			now[r.ID] = true
		}
		for id := range known {
			if !now[id] {
				gone++
			}
		}
		known = now
		return gone
	}
}
