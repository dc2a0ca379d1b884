package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// What an attack on the finished replica found.

// TestFillBesideVoid: a key that the fill has left to a write in flight is there when that write is void: a miss of it
// is not believed.
func TestFillBesideVoid(t *testing.T) {
	g := newGroup(t, 2)
	n := g.nodes[0]
	sh, err := shard.New(0, n.mem, 0, false) // as newGroup's, not filled yet
	if err != nil {
		t.Fatal(err)
	}
	n.shards[0] = sh
	g.lead(0)
	key := []byte("k")
	h := layout.HashKey(n.mem.Seed, key)
	if _, err := n.ask(base.Op{Key: key, Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	// The fill reads the key in the base, version 1.
	sh.BeginChunk(false, false)
	size := layout.ItemSize(1, 3, false)
	place, class, err := n.mem.Slabs.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	mem := n.mem.Table.Bytes(place, layout.ClassSize(class))
	n.mem.WritePending(mem, place, layout.Item{Version: 1, Key: key, Value: []byte("old")})
	sh.Mu.Lock()
	fate := sh.LinkFilled(time.Now(), h, key, 1, place, class, mem)
	sh.Mu.Unlock()
	sh.EndChunk()
	ordered := sh.Marks().Ordered
	if fate != shard.FillDropped {
		t.Fatal(fate)
	}
	g.lead(1) // void
	if err := sh.WaitPublished(t.Context(), sh.Marks().Published); err != nil || ordered == 0 {
		t.Fatal(err)
	}
	sh.SetFull(0) // what residents.Fill.after does behind its wait
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	if _, where := sh.Locate(h, key); where == shard.Nowhere {
		t.Error("the base has k in version 1, no write of it was ever done, and memory says that it is nowhere")
	}
}

// TestWaitBehindVoid: who has seen a write in flight, and begins to wait for it when it is void, does not wait.
func TestWaitBehindVoid(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	if _, err := g.nodes[0].ask(base.Op{Key: []byte("k"), Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	sh := g.nodes[0].shards[0]
	sh.Mu.Lock()
	v := sh.Newest(layout.HashKey(g.nodes[0].mem.Seed, []byte("k")), []byte("k"))
	sh.Mu.Unlock()
	g.lead(1) // void
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := sh.WaitFlight(ctx, v); err != nil {
		t.Errorf("the group is at rest, the write was void, and who saw it waits: %v", err)
	}
}

// TestLateCopyBehindVoid: a late copy of a request that was answered is not applied, when the next one of its slot is void.
func TestLateCopyBehindVoid(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	a, err := g.nodes[0].ask(add(0, "n", request(1, 4, false)))
	if err != nil {
		t.Fatal(err)
	}
	g.settle()
	if !a.over || a.result.Err != nil {
		t.Fatal(a.result)
	}
	if _, err := g.nodes[0].ask(add(0, "n", request(1, 5, false))); err != nil {
		t.Fatal(err)
	}
	g.lead(1) // 5 is void
	g.lead(0)
	for range 100 {
		g.nodes[0].results.Tick()
	}
	// A copy of 4 that has stood in a queue.
	_, err = g.nodes[0].ask(add(0, "n", request(1, 4, true)))
	g.settle()
	if n := g.nodes[1].number(0, "n"); n != 1 {
		t.Errorf("request 4 was applied twice: the number is %d, and the copy's outcome %v", n, err)
	}
}

// TestGivenMemoryOfVoid: a void write whose memory was given knows of that memory no more.
func TestGivenMemoryOfVoid(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	n := g.nodes[0]
	size := layout.ItemSize(1, 3, false)
	place, class, err := n.mem.Slabs.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	op := base.Op{Key: []byte("k"), Value: []byte("abc")}
	f := &flight.Flight{Op: &op, Result: new(base.Result), Charge: 100, Given: &flight.Given{Place: place, Class: class, Size: size}}
	voided := false
	f.Done = func(*flight.Flight) { voided = true }
	if err := n.order.Order(n.shards[0], f, pipeline.Wait{Disk: true, Memory: true}); err != nil {
		t.Fatal(err)
	}
	g.lead(1)
	if !voided || f.Given != nil || f.Result.Version != 0 || !refused(f.Result.Err) {
		t.Fatalf("void: %v, with %+v; told %+v", voided, f.Given, f.Result)
	}
	f.Reset(n.mem.Seed)
	if f.Effects[0].Given {
		t.Errorf("ordered anew it would take place %v, which was freed", f.Effects[0].Place)
	}
}

// TestAnsweredIsPublished: a write that is answered is among what a checkpoint is told.
func TestAnsweredIsPublished(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	g.lead(0)
	at := uint64(n.at + 1)
	if err := n.submit(base.Op{Key: []byte("k"), Value: []byte("v")}, func(error) {
		if index, _ := n.Published(); index < at {
			t.Errorf("the write of entry %d is answered, and Published says %d", at, index)
		}
		if _, ok := n.shards[0].Dirty.Find(layout.HashKey(n.mem.Seed, []byte("k")), []byte("k")); !ok {
			t.Error("the write is answered, and nobody can see it (R5, R7)")
		}
	}); err != nil {
		t.Fatal(err)
	}
	g.settle()
}

// TestHintIsNotOld: who is told that a write is void is not sent to a leader of long ago.
func TestHintIsNotOld(t *testing.T) {
	g := newGroup(t, 3)
	g.lead(2)
	g.nodes[0].Follows(g.term, 2)
	g.lead(0)
	a, err := g.nodes[0].ask(base.Op{Key: []byte("k"), Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	g.elect(1, 0)
	g.settle() // node 1's marker comes before Follows does
	var not *NotLeaderError
	if !errors.As(a.result.Err, &not) || not.Leader != 0 {
		t.Errorf("node 1 leads, node 0 was not told, and says: %v", a.result.Err)
	}
}

// TestLostProposalBeginsAReign: when a proposal is lost, the leader begins a new reign, and what is void is told (R3).
func TestLostProposalBeginsAReign(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	g.lead(0)
	first, _ := n.ask(base.Op{Key: []byte("a"), Value: []byte("v")})
	n.run()
	g.pending = g.pending[1:]
	var rest []*asked
	for i := range 10 {
		a, err := n.ask(base.Op{Key: []byte(fmt.Sprint("k", i)), Value: []byte("v")})
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, a)
		g.settle()
	}
	if !refused(first.result.Err) || !refused(rest[0].result.Err) {
		t.Errorf("the lost one: %+v; the one behind it: %+v", first, rest[0])
	}
	for i, a := range rest[1:] {
		if !a.over || a.result.Err != nil {
			t.Errorf("write %d of the new reign: %+v", i+1, a)
		}
	}
}

// TestMarkerTwice: a marker that comes twice begins two reigns of one leader.
func TestMarkerTwice(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	g.elect(0, 0)
	n.run()
	g.pending = append(g.pending, g.pending[0])
	g.settle()
	if _, ok := n.Ready(); !ok {
		t.Error("behind its marker, twice, the leader does not order, and proposes no other")
	}
}

// TestUnknownPlaceLosesNothing: of an entry whose place in the log is not known the writes stay where they were.
func TestUnknownPlaceLosesNothing(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	g.lead(0)
	a, err := n.ask(base.Op{Key: []byte("k"), Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	n.run()
	n.c.At = func(uint64) (log.Position, error) { return 0, errors.New("closed") }
	g.commit(len(g.pending))
	e := g.log[n.at]
	err = n.Apply([]consensus.Entry{{Index: uint64(n.at + 1), Term: e.term, Kind: consensus.Write, Data: e.data}})
	n.Follows(g.term, 0)
	n.mu.Lock()
	held := len(n.flying) + len(n.queue)
	n.mu.Unlock()
	if err == nil || !a.over && held == 0 {
		t.Errorf("apply: %v; the write is over: %v, and %d are held", err, a.over, held)
	}
}

// TestRetriesAgree: retries of all kinds of writes are told the same by the leader that did them and by the next one.
func TestRetriesAgree(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	ops := []base.Op{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("a"), Value: []byte("2"), If: base.CondAbsent},
		{Key: []byte("a"), Value: []byte("2"), If: base.CondVersion, IfVersion: layout.NumberedVersion(1, 0)},
		{Kind: base.OpDelete, Key: []byte("none")},
		{Kind: base.OpTouch, Key: []byte("none"), TTL: time.Hour},
		{Kind: base.OpTouch, Key: []byte("a"), TTL: time.Hour},
		{Kind: base.OpIncrement, Key: []byte("n"), Delta: -7},
		{Kind: base.OpIncrement, Key: []byte("n"), Delta: -1 << 63},
		{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("x"), Delete: true}, {Key: []byte("y"), Delete: true}}},
		{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("x"), Value: []byte("1")}, {Key: []byte("y"), Delete: true}}},
		{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("z"), Value: []byte("1")}, {Key: []byte("a"), If: base.CondAbsent, Value: []byte("no")}}},
		{Kind: base.OpDelete, Key: []byte("a")},
	}
	var first, again, other []string
	ask := func(age time.Duration, into *[]string) {
		for i, op := range ops {
			op.ID = request(byte(i+1), 1, false)
			op.ID.Age = age
			a, err := g.nodes[g.leader].ask(op)
			if err != nil {
				t.Fatal(i, err)
			}
			g.settle()
			if a.answered != 1 {
				t.Errorf("%d: answered %d times", i, a.answered)
			}
			*into = append(*into, fmt.Sprintf("%+v", a.result))
		}
	}
	ask(0, &first)
	ask(time.Second, &again)
	g.lead(1)
	ask(time.Second, &other)
	for i := range ops {
		if first[i] != again[i] || first[i] != other[i] {
			t.Errorf("%d: %s\n   again %s\n   other %s", i, first[i], again[i], other[i])
		}
	}
	keys := []string{"a", "n", "x", "y", "z"}
	if a, b := g.nodes[0].content(keys), g.nodes[1].content(keys); a != b {
		t.Errorf("%s\n%s", a, b)
	}
	for _, n := range g.nodes {
		if l := n.leaked(keys); l != 0 {
			t.Errorf("leaked %d", l)
		}
	}
}

// TestTooLarge: what fits into no entry that the engine takes is refused, and entries are cut below that; if one is
// refused all the same, the store is fenced, because nothing behind it would ever be proposed.
func TestTooLarge(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	c := n.c
	c.MostEntry, c.MostBytes = 256<<10, 0
	inner := c.Propose
	most := 0
	c.Propose = func(term uint64, data []byte) error {
		most = max(most, len(data))
		return inner(term, data)
	}
	n.Replica = New(c, entry.State{})
	n.order = pipeline.NewOrderer(n.Replica, n.orderEnv())
	g.lead(0)
	if _, err := n.ask(base.Op{Key: []byte("k"), Value: make([]byte, 256<<10)}); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("a put that fits into no entry: %v", err)
	}
	var all []*asked
	for i := range 8 {
		a, err := n.ask(base.Op{Key: []byte(fmt.Sprint("k", i)), Value: make([]byte, 64<<10)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	g.settle()
	for i, a := range all {
		if !a.over || a.result.Err != nil {
			t.Errorf("put %d: %+v", i, a.result)
		}
	}
	if most > 256<<10 {
		t.Errorf("an entry of %d bytes was proposed", most)
	}
	n.c.Propose = func(uint64, []byte) error { return consensus.ErrTooLarge }
	if _, err := n.ask(base.Op{Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	life := base.NewLife(base.NewFence(slog.New(slog.DiscardHandler), func(err error) { failed <- err }))
	life.Go(func() { n.Run(life) })
	if err := <-failed; !errors.Is(err, consensus.ErrTooLarge) {
		t.Errorf("fenced by %v", err)
	}
	<-life.Done()
}

// TestLastNumber: behind the last number there is none, and nothing panics.
func TestLastNumber(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	n.state.Turn.Next = layout.MaxNumber
	g.lead(0)
	e := &flight.Effect{Effect: base.Effect{Key: []byte("k"), Value: []byte("v")}}
	f := &flight.Flight{Effects: []*flight.Effect{e}}
	next := f.NumberInGroup(layout.MaxNumber)
	reign, _ := n.Ready()
	g.log = append(g.log, committed{g.term, entry.AppendWrites(nil, reign, layout.MaxNumber, next, []*flight.Flight{f})})
	n.apply(1)
	g.lead(0)
	if _, err := n.ask(base.Op{Key: []byte("x"), Value: []byte("1")}); !errors.Is(err, base.ErrEpochs) {
		t.Errorf("behind the last number: %v", err)
	}
}

// TestForget: of a replica whose state gives way to another's what is in an entry has an unknown outcome, and what is in none was not
// done; nothing of either is left in the shards, and the replica goes on behind the other state.
func TestForget(t *testing.T) {
	g := newGroup(t, 3)
	g.lead(0)
	n := g.nodes[0]
	flew, err := n.ask(add(0, "n", request(1, 1, false)))
	if err != nil {
		t.Fatal(err)
	}
	n.run() // it is in an entry
	for i := range 4 {
		if _, err := n.ask(base.Op{Shard: 1, Key: fmt.Appendf(nil, "f%d", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		n.run() // so that no more fly
	}
	waited, err := n.ask(add(0, "n", request(1, 2, false)))
	if err != nil {
		t.Fatal(err)
	}
	n.Follows(9, 2)
	n.Forget()
	if !flew.over || !errors.Is(flew.result.Err, base.ErrOutcomeUnknown) {
		t.Errorf("a write in an entry: %v, %v", flew.over, flew.result.Err)
	}
	if !waited.over || !errors.Is(waited.result.Err, base.ErrNotLeader) {
		t.Errorf("a write in no entry: %v, %v", waited.over, waited.result.Err)
	}
	keys := []string{"n", "f0", "f1", "f2", "f3"}
	if got := n.content(keys); got != "" || n.leaked(keys) != 0 {
		t.Errorf("left: %q, %d bytes", got, n.leaked(keys))
	}
	s := n.State()
	s.Applied, s.Term, s.Turn.Next = 100, 8, 50
	n.Installed(s)
	if to, configs := n.Published(); to != 100 || len(configs) != 0 {
		t.Errorf("published up to %d, with %d configurations", to, len(configs))
	}
	if err := n.Apply([]consensus.Entry{{Index: 100, Term: 8, Kind: consensus.Empty}}); err == nil {
		t.Error("an entry that the state has is applied again")
	}
}

// TestEnd: a replica that was stopped answers all that is under way.
func TestEnd(t *testing.T) {
	g := newGroup(t, 1)
	g.lead(0)
	n := g.nodes[0]
	var all []*asked
	for i := range 8 {
		a, err := n.ask(base.Op{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		n.run()
	}
	n.End(base.ErrClosed)
	unknown, closed := 0, 0
	for i, a := range all {
		switch {
		case a.answered == 1 && errors.Is(a.result.Err, base.ErrOutcomeUnknown):
			unknown++
		case a.answered == 1 && errors.Is(a.result.Err, base.ErrClosed):
			closed++
		default:
			t.Errorf("write %d: answered %d times, %v", i, a.answered, a.result.Err)
		}
	}
	if unknown != 4 || closed != 4 {
		t.Errorf("%d writes have an unknown outcome, and %d were not done", unknown, closed)
	}
	if _, err := n.ask(base.Op{Key: []byte("late"), Value: []byte("v")}); !errors.Is(err, base.ErrNotLeader) {
		t.Errorf("a write behind the end: %v", err)
	}
}

// TestForgottenEarly: a leader whose clock is fast, or that is short of room, has the record of a result removed that is not old to a
// follower. The follower knows the result still, but when it starts again it does not: so it must be on its disk that unknown means nothing
// (R4). If it were not, a retry would be applied twice. A record that is old is removed without that.
func TestForgottenEarly(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	leader, follower := g.nodes[0], g.nodes[1]
	forget := func() {
		t.Helper()
		f := &flight.Flight{Op: &base.Op{Kind: base.OpForget}, Result: new(base.Result), Done: func(*flight.Flight) {}}
		f.Forget = []base.SlotKey{(&base.RequestID{Client: [16]byte{1}, Seq: 1}).SlotKey()}
		if err := leader.order.Order(leader.shards[0], f, pipeline.Wait{Disk: true}); err != nil {
			t.Fatal(err)
		}
		if len(f.Forget) != 1 {
			t.Fatal("the leader keeps the record")
		}
		g.settle()
	}
	const old = int(dedup.ForgetAfter / dedup.TickEvery)
	tick := func(n *node, ticks int) {
		for range ticks {
			n.results.Tick()
		}
	}
	for seq, slow := range []bool{true, false, true} {
		follower.short = 0
		if _, err := leader.ask(add(0, "n", request(1, uint64(seq+1), false))); err != nil {
			t.Fatal(err)
		}
		g.settle()
		tick(leader, old+1)
		if !slow {
			tick(follower, old-1) // it remembers the result still
		}
		forget()
		if (follower.short > 0) != slow || follower.results.Short() != slow || leader.results.Short() || leader.short != 0 {
			t.Errorf("follower slow: %v; it was told %d times that records were removed early, and says %v", slow, follower.short, follower.results.Short())
		}
		id := request(1, uint64(seq+1), true)
		if again, err := follower.results.Look(&id); slow && (!again || err != nil) {
			t.Errorf("the follower has forgotten the result, too: %v, %v", again, err)
		}
		tick(follower, 2*old) // until nothing of it matters any more
	}
}

// TestReignOfAWrite: a write that was decided on what was true in one reign is ordered in no other.
func TestReignOfAWrite(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	n := g.nodes[0]
	order := func(reign uint64) error {
		f := &flight.Flight{Op: &base.Op{Key: []byte("k"), Value: []byte("v")}, Result: new(base.Result), Charge: 2, Done: func(*flight.Flight) {}, Reign: reign}
		err := n.order.Order(n.shards[0], f, pipeline.Wait{Disk: true, Memory: true})
		g.settle()
		return err
	}
	reign, ok := n.Ready()
	if !ok || order(reign) != nil || order(0) != nil {
		t.Errorf("reign %d, it leads: %v", reign, ok)
	}
	g.lead(1)
	if err := order(reign); !refused(err) {
		t.Errorf("another leads: %v", err)
	}
	g.lead(0)
	now, _ := n.Ready()
	if err := order(reign); !refused(err) || now == reign {
		t.Errorf("it leads again, in reign %d, and takes a write of reign %d: %v", now, reign, err)
	}
	if err := order(now); err != nil {
		t.Error(err)
	}
}
