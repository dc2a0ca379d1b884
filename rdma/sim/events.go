package sim

import (
	"container/heap"
	"slices"
	"time"
)

// An event is something that will happen at a time, or earlier after a number
// of steps. It runs under the network's lock and calls no program.
type event struct {
	at    int64 // nanoseconds since the network was made
	seq   uint64
	steps int // > 0: happens at that many steps from now, if that is earlier
	run   func()
	index int // in the heap; -1: gone
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *eventHeap) Push(x any) {
	e := x.(*event)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}

func (n *Network) now() int64 { return int64(time.Since(n.began)) }

// after makes an event. The caller holds mu, and calls turn before it gives mu
// up.
func (n *Network) after(d time.Duration, run func()) *event {
	return n.at(n.now()+int64(d), run)
}

// at is after for a point in time; one that has passed is now.
func (n *Network) at(t int64, run func()) *event {
	n.seq++
	e := &event{at: t, seq: n.seq, run: run}
	heap.Push(&n.events, e)
	return e
}

// afterSteps makes an event for the k-th step from now, or for a time if the
// steps do not come.
func (n *Network) afterSteps(k int, d time.Duration, run func()) {
	if len(n.stepping) >= n.sweep { // forget the events whose time came first
		n.stepping = slices.DeleteFunc(n.stepping, func(e *event) bool { return e.index < 0 })
		n.sweep = max(64, 2*len(n.stepping))
	}
	e := n.after(d, run)
	e.steps = k
	n.stepping = append(n.stepping, e)
}

// cancel takes an event back, if it has not happened.
func (n *Network) cancel(e *event) {
	if e != nil && e.index >= 0 {
		heap.Remove(&n.events, e.index)
	}
}

// turn lets every event happen that is due, and ensures that the others will
// happen in time. The caller holds mu. If it is called from within an event it
// leaves the work to the turn that runs already.
func (n *Network) turn() {
	if n.turning {
		return
	}
	n.turning = true
	for len(n.events) > 0 && n.events[0].at <= n.now() {
		heap.Pop(&n.events).(*event).run()
	}
	n.turning = false
	if len(n.events) == 0 {
		if n.timer != nil {
			n.timer.Stop()
			n.wake = 0
		}
		return
	}
	next := n.events[0].at
	if n.wake != 0 && n.wake <= next {
		return // the timer comes early enough
	}
	d := time.Duration(next - n.now())
	n.wake = next
	if n.timer == nil {
		n.timer = time.AfterFunc(d, n.tick)
		return
	}
	n.timer.Reset(d)
}

// tick runs when the timer fires.
func (n *Network) tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake = 0
	n.turn()
}

// Step tells the network that the program has done one more thing between which
// and the next a load may come: the loads that wait for it happen now, on this
// goroutine. It does not block and calls no code of the program. It is safe for
// concurrent use, also from a goroutine that holds locks of the program,
// because the fabric takes none of them.
func (n *Network) Step() {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.stepping[:0]
	var due []*event
	for _, e := range n.stepping {
		switch e.steps--; {
		case e.index < 0: // its time has come before
		case e.steps <= 0:
			heap.Remove(&n.events, e.index)
			due = append(due, e)
		default:
			kept = append(kept, e)
		}
	}
	clear(n.stepping[len(kept):])
	n.stepping = kept
	busy := n.turning
	n.turning = true
	for _, e := range due {
		e.run()
	}
	n.turning = busy
	n.turn()
}
