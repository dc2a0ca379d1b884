package iwarp

import (
	"sync"
	"time"
)

// A keeper looks after connections that a waiter has hushed and not come back
// to. Its goroutine is there only while there are hushed connections.
type keeper struct {
	mu   sync.Mutex
	list map[*qp]uint64 // receiver.looks when it was last looked at
	quit chan struct{}  // closed when list gets empty
}

// add notes that q is hushed. Under q.rxMu.
func (k *keeper) add(q *qp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.list == nil {
		k.list = make(map[*qp]uint64)
	}
	if len(k.list) == 0 {
		k.quit = make(chan struct{})
		go k.run(k.quit)
	}
	k.list[q] = q.rx.looks
}

// drop forgets q. Under q.rxMu.
func (k *keeper) drop(q *qp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.list[q]; !ok {
		return
	}
	delete(k.list, q)
	if len(k.list) == 0 {
		close(k.quit)
	}
}

// run is the goroutine: until quit is closed it lowers the mark of those at
// which nobody has looked for a whole turn.
func (k *keeper) run(quit <-chan struct{}) {
	tick := time.NewTicker(keepEvery / 2)
	defer tick.Stop()
	var list []*qp
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
		}
		list = list[:0]
		k.mu.Lock()
		for q := range k.list {
			list = append(list, q)
		}
		k.mu.Unlock()
		for _, q := range list {
			k.visit(q)
		}
	}
}

func (k *keeper) visit(q *qp) {
	q.ring()
	if !q.rxMu.TryLock() {
		return // somebody looks
	}
	defer q.rxMu.Unlock()
	q.ring() // no round can ask for that now
	k.mu.Lock()
	seen, ok := k.list[q]
	if ok {
		k.list[q] = q.rx.looks
	}
	k.mu.Unlock()
	switch {
	case !ok:
		return
	case q.rx.ended || !q.hushed.Load():
		k.drop(q)
		return
	case seen != q.rx.looks:
		return
	}
	q.unhush()
	k.drop(q)
	if q.drain() == drainEnd {
		q.endLook()
	}
}
