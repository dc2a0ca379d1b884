package session

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/store/layout"
)

const second1 = int64(time.Second)

func TestLeaseFromBeats(t *testing.T) {
	var l Lease
	l.start(2*time.Second, 100*second1, 5)
	L := leaseLength(2 * time.Second)
	if L >= 2*second1 {
		t.Fatal("the rate bound is not taken off")
	}
	deadline := func() int64 { return l.current.Load().deadline - 100*second1 }
	beat := func(counter uint64, posted int64) {
		if _, behind := l.Observe(layout.Beat{Counter: counter, ReclaimVersion: 5}, 100*second1+posted); behind {
			t.Fatal("behind")
		}
	}
	ms := int64(time.Millisecond)
	if deadline() != L {
		t.Fatal("the first lease counts from the request that opened the session")
	}
	beat(7, 700*ms) // the first beat ever seen proves no more than Hello did
	if deadline() != L {
		t.Errorf("one beat gave a lease to %v", time.Duration(deadline()))
	}
	beat(7, 800*ms) // the same beat again: the server may have stopped
	if deadline() != L {
		t.Errorf("an old beat gave a lease to %v", time.Duration(deadline()))
	}
	beat(8, 1400*ms) // it beat after the READ posted at 800 ms
	if deadline() != 800*ms+L {
		t.Errorf("deadline %v", time.Duration(deadline()))
	}
	beat(7, 1300*ms) // handled late: posted at 1300, and 8 came after it
	if deadline() != 1300*ms+L {
		t.Errorf("deadline %v", time.Duration(deadline()))
	}
	beat(9, 1200*ms) // posted earlier than others: never backwards
	if deadline() != 1400*ms+L {
		t.Errorf("deadline %v", time.Duration(deadline()))
	}
}

// READs may be sampled in another order than they were posted in. The lease
// counts from the post of one, the READ that proves it was posted before, and a
// page retired between the two posts is on the list of the first alone.
func TestLeaseProvedByAnEarlierPost(t *testing.T) {
	var l Lease
	l.start(2*time.Second, 0, 5)
	l.Observe(layout.Beat{Counter: 1, ReclaimVersion: 5}, second1)
	l.Observe(layout.Beat{Counter: 1, ReclaimVersion: 6}, 3*second1/2)
	want, behind := l.Observe(layout.Beat{Counter: 2, ReclaimVersion: 5}, 5*second1/4)
	if !behind || want != 6 {
		t.Fatalf("the lease counts from the second READ, whose list must be known: %d %v", want, behind)
	}
}

// A result counts by the grant loaded before the post, whatever was renewed
// since.
func TestLeaseHolds(t *testing.T) {
	var l Lease
	l.start(2*time.Second, 0, 0)
	atPost := l.current.Load()
	l.Observe(layout.Beat{Counter: 1}, second1)
	l.Observe(layout.Beat{Counter: 2}, 2*second1)
	if l.current.Load() == atPost {
		t.Fatal("not renewed")
	}
	if !l.Holds(atPost, atPost.deadline-1) {
		t.Error("a result within its lease was refused")
	}
	if l.Holds(atPost, atPost.deadline) {
		t.Error("a renewal extended the operation")
	}
}

// A lease with a higher reclaim version waits for the list.
func TestLeaseWaitsForReclaims(t *testing.T) {
	var l Lease
	l.start(2*time.Second, 0, 5)
	first := l.current.Load()
	l.Observe(layout.Beat{Counter: 1, ReclaimVersion: 5}, second1)
	want, behind := l.Observe(layout.Beat{Counter: 2, ReclaimVersion: 8}, 2*second1)
	if !behind || want != 8 || l.current.Load() != first {
		t.Fatalf("the lease was taken before the list was read: %d %v", want, behind)
	}
	// Another beat in the meantime raises both.
	if want, behind = l.Observe(layout.Beat{Counter: 3, ReclaimVersion: 9}, 2*second1+1); !behind || want != 9 {
		t.Fatal(want, behind)
	}
	log := first.Retired.Extend(retiredPagesFrom(6, 0, 512, 1024)) // up to 8
	l.reclaimed(log)
	if g := l.current.Load(); g.deadline != first.deadline || g.Retired != log {
		t.Fatal("the list was read up to 8, the lease needs 9; but what is known must be used")
	}
	if want, ok := l.wanted(); !ok || want != 9 {
		t.Fatal(want, ok)
	}
	l.reclaimed(log.Extend(retiredPagesFrom(9, 2048)))
	if g := l.current.Load(); g.deadline != 2*second1+leaseLength(2*time.Second) || g.Retired.Version != 9 {
		t.Fatalf("%+v", g)
	}
	if _, ok := l.wanted(); ok {
		t.Error("still waiting")
	}
	l.reclaimed(log) // an older list that comes late changes nothing
	if l.current.Load().Retired.Version != 9 {
		t.Error("went back")
	}
}

// Whatever is observed in whatever order, a deadline in force at time x is at
// most L after the last instant at which the server was entitled to serve. The
// server here beats each 200 ms and stops for good at a drawn time.
func TestLeaseSafety(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const beatEvery = 200
		stop := rapid.Int64Range(0, 20_000).Draw(t, "stop")
		counterAt := func(x int64) uint64 { return uint64(min(x, stop) / beatEvery) }
		var l Lease
		hello := rapid.Int64Range(0, stop).Draw(t, "hello")
		l.start(2*time.Second, hello*1e6, 0)
		L := l.Length / 1e6
		for range rapid.IntRange(0, 30).Draw(t, "reads") {
			posted := rapid.Int64Range(hello, hello+30_000).Draw(t, "posted")
			sampled := posted + rapid.Int64Range(0, 3000).Draw(t, "delay")
			l.Observe(layout.Beat{Counter: counterAt(sampled)}, posted*1e6)
			if d := l.current.Load().deadline / 1e6; d > stop+L+1 && d > hello+L+1 {
				t.Fatalf("server stopped at %d, lease until %d", stop, d)
			}
		}
	})
}

// retiredPagesFrom is retirements of two pages each, with versions from the given one on.
func retiredPagesFrom(from uint64, places ...layout.Place) (entries []layout.Retired) {
	for i, p := range places {
		entries = append(entries, layout.Retired{Version: from + uint64(i), Place: p, Pages: 2})
	}
	return entries
}
