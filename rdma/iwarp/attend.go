package iwarp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma/wait"
)

const (
	// crowd bounds how many other readers of the device may wake between two READs of
	// one connection. Above it a reader stops looking: the processors have enough to
	// do, and the netpoller, which is asked then, asks for all sockets at once.
	crowd = 2
	// crowdAway is for how many READs such a reader then does not look.
	crowdAway = 64
	// yieldTurns is after how many looks the reader lets other goroutines have its
	// processor. Without it, with as many connections as processors in mode poll, no
	// other goroutine would run, not even the one that handles the awaited request.
	yieldTurns = 64
)

// budget is what a QP of the fabric may spin. With one processor no goroutine asks the
// netpoller while another one runs, so there the reader looks only if the
// configuration says so.
func (o *Options) budget() *wait.SpinBudget {
	spin := o.Spin
	if o.Wait != wait.Poll && runtime.GOMAXPROCS(0) == 1 {
		spin = 0
	}
	return wait.NewSpinBudget(o.Wait, max(spin, 0))
}

// attend looks for the peer's next READ, if this round had one, for as long as the
// budget says, and again after each READ that came. The caller holds rx.mu.
func (look *looker) attend() int {
	q := look.q
	rx, spins := &q.rx, &q.pd.dev.spins
	wakes := spins.wakes.Add(1)
	if rx.served == look.attended {
		return drainEmpty // it was something else
	}
	look.attended = rx.served
	crowded := wakes-look.wakes > crowd+1
	look.wakes = wakes
	now := time.Time{}
	if look.budget.Adaptive() {
		now = time.Now()
		if !look.slept.IsZero() {
			look.budget.Slept(now.Sub(look.slept))
		}
		if crowded {
			look.away = crowdAway
		}
	}
	if look.away > 0 {
		look.away--
		look.slept = now
		return drainEmpty
	}
	for {
		if q.tx.sending() {
			break // the peer has not got all yet, and the writer may need this processor
		}
		d := look.budget.Next()
		if d <= 0 {
			break
		}
		if !look.noted {
			look.noted = true
			spins.add(look.budget)
		}
		if look.await(d) == drainEnd {
			return drainEnd
		}
		if rx.served == look.attended {
			break
		}
		look.attended = rx.served
	}
	look.slept = time.Time{}
	if look.budget.Adaptive() {
		look.slept = time.Now()
	}
	if !look.muted.Load() {
		return drainEmpty
	}
	look.unmute()
	return q.rx.drain() // takes what came before the kernel was asked to announce it
}

// await looks for up to d, until a READ has come. The caller holds rx.mu.
func (look *looker) await(d time.Duration) int {
	q := look.q
	rx, spins := &q.rx, &q.pd.dev.spins
	start := time.Now()
	if !look.mute() {
		look.budget.Quit()
		return drainEmpty
	}
	for turn := 1; ; turn++ {
		if q.rx.glance() == drainEnd {
			look.budget.Quit()
			return drainEnd
		}
		if rx.served != look.attended {
			look.wakes = spins.wakes.Load()
			look.budget.Got(time.Since(start))
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
			look.budget.Vain(took)
			return drainEmpty
		case look.budget.Adaptive() && spins.wakes.Load()-look.wakes > crowd:
			look.away = crowdAway
			look.budget.Quit()
			return drainEmpty
		}
	}
}

// spinners are the budgets of a device's connections that have spun.
type spinners struct {
	wakes atomic.Uint64 // of readers by the netpoller

	mu   sync.Mutex
	list map[*wait.SpinBudget]struct{}
	gone wait.SpinStats // of connections that have ended
}

func (s *spinners) add(b *wait.SpinBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[*wait.SpinBudget]struct{})
	}
	s.list[b] = struct{}{}
}

func (s *spinners) drop(b *wait.SpinBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, b)
	s.gone.Add(b.Stats())
}

// stats sums up all budgets, those of closed connections included.
func (s *spinners) stats() wait.SpinStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.gone
	for b := range s.list {
		sum.Add(b.Stats())
	}
	return sum
}

// SpinStats says how long the goroutines that answer READs have spun, over all
// connections of the device.
func (d *device) SpinStats() wait.SpinStats { return d.spins.stats() }
