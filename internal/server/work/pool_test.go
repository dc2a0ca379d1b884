package work

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A poolRig is a pool without workers, of which a test is each worker.
type poolRig struct {
	t *testing.T
	p *Pool
}

func newPoolRig(t *testing.T, share int) *poolRig {
	return &poolRig{t, New(Scans, 0, share, share)}
}

// A testSource is a session that a test ends.
type testSource struct{ ended bool }

func (s *testSource) Ended() bool { return s.ended }
func (s *testSource) Flush()      {}

// A testJob counts how it ends, and the credits that its answer gives.
type testJob struct {
	run, dropped, refused, granted int
	again                          bool
}

func (j *testJob) Run()           { j.run++ }
func (j *testJob) Drop()          { j.dropped++ }
func (j *testJob) Refuse()        { j.refused++ }
func (j *testJob) Again() bool    { return j.again }
func (j *testJob) AddGrant(n int) { j.granted += n }

func (g *poolRig) line(o *Turns) *Line {
	l := new(Line)
	l.Init(o, new(testSource))
	return l
}

// send queues n jobs of a line.
func (g *poolRig) send(l *Line, n int) {
	for range n {
		g.p.Submit(l, new(testJob))
	}
}

// take is a worker that begins; nil if there is nothing that may run.
func (g *poolRig) take() *Line {
	g.p.mu.Lock()
	none := g.p.ready.len() == 0
	g.p.mu.Unlock()
	if none {
		return nil
	}
	_, l, _ := g.p.next()
	return l
}

func poolTenant() *Turns { return &Turns{MaxQueued: 1 << 20} }

// TestPoolTakesTurns: however much one has sent, the next one waits behind one
// request of each other, login by login and within a login session by session; and
// what a session sends is done in the order in which it came.
func TestPoolTakesTurns(t *testing.T) {
	g := newPoolRig(t, 100)
	flood, bob := poolTenant(), poolTenant()
	f1, f2, f3, b := g.line(flood), g.line(flood), g.line(flood), g.line(bob)
	g.send(f1, 50)
	g.send(f2, 50)
	g.send(b, 2)
	g.send(f3, 1)
	var got []*Line
	for range 8 {
		got = append(got, g.take())
	}
	if want := []*Line{f1, b, f2, b, f3, f1, f2, f1}; !slices.Equal(got, want) {
		names := map[*Line]string{f1: "f1", f2: "f2", f3: "f3", b: "b"}
		for i := range got {
			t.Errorf("turn %d: %s, want %s", i, names[got[i]], names[want[i]])
		}
	}
	if w, r := g.p.Load(); w != 103-8 || r != 8 {
		t.Errorf("%d wait, %d run", w, r)
	}
}

// TestPoolShare: a login never holds more workers than its share, and has the next
// one as soon as it gives one back; others are not concerned.
func TestPoolShare(t *testing.T) {
	g := newPoolRig(t, 2)
	flood, bob := poolTenant(), poolTenant()
	f, b := g.line(flood), g.line(bob)
	g.send(f, 10)
	for i, want := range []*Line{f, f, nil} {
		if g.take() != want {
			t.Fatalf("take %d: the share of a login is not two", i)
		}
	}
	g.send(b, 1)
	if g.take() != b || g.take() != nil {
		t.Fatal("another login is held up by the first")
	}
	g.p.done(bob)
	if g.take() != nil {
		t.Fatal("a worker that another has given back is taken")
	}
	g.p.done(flood)
	if g.take() != f || g.take() != nil {
		t.Fatal("a worker that was given back is not used")
	}
}

// TestPoolDropsWhatIsGone: the requests of a session that has ended leave at once,
// and nobody else's do; none comes in any more.
func TestPoolDropsWhatIsGone(t *testing.T) {
	g := newPoolRig(t, 1)
	flood := poolTenant()
	gone, stays := g.line(flood), g.line(flood)
	g.send(gone, 1000)
	g.send(stays, 1)
	if n := len(g.p.Take(gone)); n != 1000 {
		t.Errorf("%d requests were dropped", n)
	}
	if w, _ := g.p.Load(); w != 1 || flood.turns[Scans].waiting != 1 {
		t.Errorf("%d wait, %d of the login", w, flood.turns[Scans].waiting)
	}
	if g.take() != stays || g.take() != nil {
		t.Error("the other session lost its turn, or the one that is gone has one")
	}
	if len(g.p.Take(stays)) != 0 || flood.turns[Scans].listed {
		t.Error("something is left")
	}
}

// TestPoolRandomly: whatever comes, goes and is dropped, every request ends once,
// counts come out at zero, and nobody with work is forgotten.
func TestPoolRandomly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	g := newPoolRig(t, 3)
	var all []*Line
	for range 5 {
		l := poolTenant()
		for range 4 {
			all = append(all, g.line(l))
		}
	}
	sent, done := 0, 0
	var running []*Line
	for range 20000 {
		s := all[rnd.IntN(len(all))]
		switch rnd.IntN(6) {
		case 0, 1, 2:
			n := rnd.IntN(4)
			g.send(s, n)
			sent += n
		case 3:
			if rnd.IntN(20) == 0 {
				done += len(g.p.Take(s))
			}
		case 4:
			if s := g.take(); s != nil {
				running = append(running, s)
			}
		case 5:
			if len(running) > 0 {
				i := rnd.IntN(len(running))
				g.p.done(running[i].owner)
				running = slices.Delete(running, i, i+1)
				done++
			}
		}
		for _, s := range all {
			if n := s.owner.turns[Scans].running; n > 3 {
				t.Fatalf("a login runs %d", n)
			}
		}
	}
	for len(running) > 0 || g.p.waiting > 0 {
		if s := g.take(); s != nil {
			running = append(running, s)
			continue
		}
		if len(running) == 0 {
			t.Fatalf("%d requests are forgotten", g.p.waiting)
		}
		g.p.done(running[0].owner)
		running = running[1:]
		done++
	}
	if w, r := g.p.Load(); sent != done || w != 0 || r != 0 {
		t.Errorf("%d sent, %d done; %d wait, %d run", sent, done, w, r)
	}
}

// TestPoolBound: a job over the bound is refused, unless its line has nothing there or it
// was let in before; the credits of the refused come one by one with the jobs that wait,
// and what is left with the last of them.
func TestPoolBound(t *testing.T) {
	g := newPoolRig(t, 100)
	o := &Turns{MaxQueued: 2}
	l, other := g.line(o), g.line(o)
	waits := [2]testJob{}
	g.p.Submit(l, &waits[0])
	g.p.Submit(l, &waits[1])
	var over [3]testJob
	for i := range over {
		g.p.Submit(l, &over[i])
		if over[i].refused != 1 {
			t.Fatalf("job %d over the bound: %+v", i, over[i])
		}
	}
	first, again := new(testJob), &testJob{again: true}
	g.p.Submit(other, first)
	g.p.Submit(other, again)
	if w, _ := g.p.Load(); w != 4 || first.refused+again.refused != 0 {
		t.Errorf("%d wait; %+v, %+v", w, first, again)
	}
	for range 4 {
		g.take()
	}
	if waits[0].granted != 1 || waits[1].granted != 2 || first.granted+again.granted != 0 {
		t.Errorf("credits: %d, %d, %d, %d", waits[0].granted, waits[1].granted, first.granted, again.granted)
	}
}

// TestPoolEnds: jobs of a session that has ended, or that come to a closed pool or are
// left in one, are dropped; the others are run.
func TestPoolEnds(t *testing.T) {
	p := New(Gets, 1, 1, 1)
	line := func() (*Line, *testSource) {
		l, s := new(Line), new(testSource)
		l.Init(&Turns{}, s)
		return l, s
	}
	l, _ := line()
	gone, source := line()
	source.ended = true
	var run, ended, late testJob
	p.Submit(gone, &ended)
	p.Submit(l, &run)
	for {
		if w, r := p.Load(); w+r == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	p.Close()
	p.Submit(l, &late)
	if run != (testJob{run: 1}) || ended != (testJob{dropped: 1}) || late != (testJob{dropped: 1}) {
		t.Errorf("run %+v, ended %+v, late %+v", run, ended, late)
	}
}

// TestFifo: memory is used again, whatever the pattern.
func TestFifo(t *testing.T) {
	var f fifo[int]
	for i := range 10_000 { // never empty, as under a load that does not end
		f.push(i)
		if i >= 3 {
			if v := f.pop(); v != i-3 {
				t.Fatalf("got %d, want %d", v, i-3)
			}
		}
	}
	if f.len() != 3 || cap(f.items) > 16 {
		t.Errorf("%d of 3, room for %d", f.len(), cap(f.items))
	}
	f.remove(9998)
	f.remove(5)
	if f.pop() != 9997 || f.pop() != 9999 || f.len() != 0 {
		t.Error("remove took another one")
	}
}
