package iwarp

import (
	"sync"
	"time"
)

// A keeper looks after connections to which no goroutine may come back. A device has one
// for those whose sockets a waiter has muted (unmuter), and one for those that may have been
// reset behind their last bytes (doubter). Its goroutine exists only while there are any.
type keeper struct {
	every time.Duration // between two visits of a connection
	visit func(*qp)

	mu   sync.Mutex
	list map[*qp]uint64 // looker.looks at the last visit
	quit chan struct{}  // closed when list gets empty
}

// add has q visited from now on. The caller holds q.rx.mu.
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

// run is the goroutine: it visits all connections at each turn, until quit is closed.
func (k *keeper) run(quit <-chan struct{}) {
	tick := time.NewTicker(k.every)
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

// quiet says whether q is listed and no goroutine has looked into its socket since the last
// visit. The caller holds q.rx.mu.
func (k *keeper) quiet(q *qp) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen, ok := k.list[q]
	if ok {
		k.list[q] = q.look.looks
	}
	return ok && seen == q.look.looks
}

// keepMuted rings for requests that wait, and unmutes the socket of q if no goroutine has
// looked into it since the last visit.
func keepMuted(q *qp) {
	k := &q.pd.dev.unmuter
	q.tx.ring()
	if !q.rx.mu.TryLock() {
		return // another goroutine looks
	}
	defer q.rx.mu.Unlock()
	q.tx.ring() // no round can ask for that now
	if q.rx.ended || !q.look.muted.Load() {
		k.drop(q)
		return
	}
	if !k.quiet(q) {
		return
	}
	q.look.unmute()
	k.drop(q)
	q.look.read()
}

// keepDoubted reads the socket of q once more, if no goroutine has done so since the last
// visit; see looker.doubt.
func keepDoubted(q *qp) {
	k := &q.pd.dev.doubter
	if !q.rx.mu.TryLock() {
		return // another goroutine looks
	}
	defer q.rx.mu.Unlock()
	if !q.rx.ended && !q.rx.sure && !k.quiet(q) {
		return
	}
	q.look.doubted = false
	k.drop(q)
	if !q.rx.ended && !q.rx.sure {
		q.look.read()
	}
}
