package iwarp

import (
	"sync"
	"time"
)

// A keeper looks after connections whose sockets a waiter has muted and not come back
// to, and after those that may have been reset behind their last bytes (looker.doubt).
// Its goroutine exists only while there are any.
type keeper struct {
	mu   sync.Mutex
	list map[*qp]uint64 // looker.looks when it was last looked at
	quit chan struct{}  // closed when list gets empty
}

// add notes that the socket of q is muted, or doubted. The caller holds q.rx.mu.
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
	k.list[q] = q.look.looks
}

// drop removes q. The caller holds q.rx.mu.
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

// run is the goroutine: until quit is closed it lowers the mark of sockets into
// which no goroutine has looked for a whole turn.
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

// visit rings for requests that wait, and unmutes the socket of q and reads it, if no
// goroutine has looked into it since the last visit.
func (k *keeper) visit(q *qp) {
	q.tx.ring()
	if !q.rx.mu.TryLock() {
		return // another goroutine looks
	}
	defer q.rx.mu.Unlock()
	q.tx.ring() // no round can ask for that now
	k.mu.Lock()
	seen, ok := k.list[q]
	if ok {
		k.list[q] = q.look.looks
	}
	k.mu.Unlock()
	switch {
	case !ok:
		return
	case q.rx.ended || !q.look.muted.Load() && !q.look.doubted:
		k.drop(q)
		return
	case seen != q.look.looks:
		return
	}
	q.look.unmute()
	q.look.doubted = false
	k.drop(q)
	if q.rx.drain() == drainEnd {
		q.look.end()
		return
	}
	q.look.doubt()
}
