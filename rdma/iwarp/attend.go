package iwarp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// An attendant is what a reader knows of the READs that it answers: whether it
// is worth while to look for the next one before it sleeps.
type attendant struct {
	budget *rdma.SpinBudget
	slept  time.Time // when it began to wait for the netpoller; zero: no READs before
	wakes  uint64    // device.spins.wakes when this reader last had something to do
	away   int       // READs for which it does not look: others are at work, too
	noted  bool      // the device knows budget

	attended uint64 // receiver.served when attend last looked at it
}

const (
	// crowd is how many other readers of the device may wake between two READs
	// of one connection before there is no point in looking: the processors
	// have enough to do, and the netpoller, which is asked then, asks for all.
	crowd = 2
	// crowdAway is for how many READs such a reader then does not look.
	crowdAway = 64
	// yieldTurns is after how many looks it lets other goroutines have its
	// processor: with as many connections as processors in mode poll nobody else
	// would run, not even who handles the request that is waited for.
	yieldTurns = 64
)

// budget is what a QP of the fabric may spin. The netpoller is nobody's with
// one processor while a goroutine runs, so then nobody looks unless told to.
func (o *Options) budget() *rdma.SpinBudget {
	spin := o.Spin
	if o.Wait != rdma.WaitPoll && runtime.GOMAXPROCS(0) == 1 {
		spin = 0
	}
	return rdma.NewSpinBudget(o.Wait, max(spin, 0))
}

// attend looks for the peer's next READ, if this round had one, for as long as
// the budget says and again after each that came. Under rxMu.
func (q *qp) attend() int {
	rx, spins := &q.rx, &q.pd.dev.spins
	wakes := spins.wakes.Add(1)
	if rx.served == rx.attended {
		return drainEmpty // it was something else
	}
	rx.attended = rx.served
	crowded := wakes-rx.wakes > crowd+1
	rx.wakes = wakes
	now := time.Time{}
	if rx.budget.Adaptive() {
		now = time.Now()
		if !rx.slept.IsZero() {
			rx.budget.Slept(now.Sub(rx.slept))
		}
		if crowded {
			rx.away = crowdAway
		}
	}
	if rx.away > 0 {
		rx.away--
		rx.slept = now
		return drainEmpty
	}
	for {
		if q.sending() {
			break // the peer has not got all yet, and who sends may need this processor
		}
		d := rx.budget.Next()
		if d <= 0 {
			break
		}
		if !rx.noted {
			rx.noted = true
			spins.add(rx.budget)
		}
		if q.await(d) == drainEnd {
			return drainEnd
		}
		if rx.served == rx.attended {
			break
		}
		rx.attended = rx.served
	}
	rx.slept = time.Time{}
	if rx.budget.Adaptive() {
		rx.slept = time.Now()
	}
	if !q.hushed.Load() {
		return drainEmpty
	}
	q.unhush()
	return q.drain() // what came before the kernel was asked to announce it
}

// sending reports whether somebody transmits: a writer, who waits for the socket.
func (q *qp) sending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.txBusy
}

// await looks for up to d, until a READ has come. Under rxMu.
func (q *qp) await(d time.Duration) int {
	rx, spins := &q.rx, &q.pd.dev.spins
	start := time.Now()
	if !q.hush() {
		rx.budget.Quit()
		return drainEmpty
	}
	for turn := 1; ; turn++ {
		if q.glance() == drainEnd {
			rx.budget.Quit()
			return drainEnd
		}
		if rx.served != rx.attended {
			rx.wakes = spins.wakes.Load()
			rx.budget.Got(time.Since(start))
			return drainEmpty
		}
		if turn%yieldTurns == 0 {
			runtime.Gosched() // perhaps for long: look before the clock
			continue
		}
		if turn%clockTurns != 0 {
			continue
		}
		switch took := time.Since(start); {
		case took >= d:
			rx.budget.Vain(took)
			return drainEmpty
		case rx.budget.Adaptive() && spins.wakes.Load()-rx.wakes > crowd:
			rx.away = crowdAway
			rx.budget.Quit()
			return drainEmpty
		}
	}
}

// spinners are the budgets of a device's connections that have spun.
type spinners struct {
	wakes atomic.Uint64 // of readers by the netpoller

	mu   sync.Mutex
	list map[*rdma.SpinBudget]struct{}
	gone rdma.SpinStats // of connections that have ended
}

func (s *spinners) add(b *rdma.SpinBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[*rdma.SpinBudget]struct{})
	}
	s.list[b] = struct{}{}
}

func (s *spinners) drop(b *rdma.SpinBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, b)
	s.gone.Add(b.Stats())
}

func (s *spinners) stats() rdma.SpinStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.gone
	for b := range s.list {
		sum.Add(b.Stats())
	}
	return sum
}

// SpinStats are what the goroutines that answer READs have spun, over all
// connections of the device.
func (d *device) SpinStats() rdma.SpinStats { return d.spins.stats() }
