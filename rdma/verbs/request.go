package verbs

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// errLeft is what a program learns that accepts a peer who has given up.
var errLeft = fmt.Errorf("%w: the peer has given up waiting", rdma.ErrPeerGone)

// A requestQueue holds the connection requests of a listener until the program
// takes them.
type requestQueue[T any] struct {
	ch     chan T
	closed chan struct{}

	mu   sync.Mutex
	shut bool
}

func (q *requestQueue[T]) init(limit int) {
	q.ch, q.closed = make(chan T, limit), make(chan struct{})
}

// put queues a request; false if the queue is full or closed.
func (q *requestQueue[T]) put(r T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return false
	}
	select {
	case q.ch <- r:
		return true
	default:
		return false
	}
}

// get waits for a request at the listener of that address.
func (q *requestQueue[T]) get(ctx context.Context, addr net.Addr) (r T, err error) {
	select {
	case <-q.closed:
		return r, opError("accept", addr.String(), fmt.Errorf("%w: listener", rdma.ErrClosed))
	default:
	}
	select {
	case <-q.closed:
		return r, opError("accept", addr.String(), fmt.Errorf("%w: listener", rdma.ErrClosed))
	case <-ctx.Done():
		return r, ctx.Err()
	case r = <-q.ch:
		return r, nil
	}
}

// close takes no more requests; false if it did so before.
func (q *requestQueue[T]) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return false
	}
	q.shut = true
	close(q.closed)
	return true
}

// rest are the requests that nobody took. Call it after close.
func (q *requestQueue[T]) rest() (list []T) {
	for {
		select {
		case r := <-q.ch:
			list = append(list, r)
		default:
			return list
		}
	}
}

// A requestLife says whose a request is and sees to it that it is answered
// once.
type requestLife struct {
	mu    sync.Mutex
	state requestState
	timer *time.Timer // drops a request that the program leaves alone
}

type requestState uint8

const (
	requestQueued   requestState = iota // with the fabric
	requestTaken                        // Accept returned it
	requestLeft                         // the same, and the peer has given up
	requestAnswered                     // accepted, rejected or dropped
)

// take marks the request as the program's; false if it was dropped meanwhile.
func (l *requestLife) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != requestQueued {
		return false
	}
	l.state = requestTaken
	return true
}

// leave notes that the peer has given up. It is true for a request that nobody
// has taken: it is over then, and the caller frees what belongs to it.
func (l *requestLife) leave() (over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case requestQueued:
		l.finishLocked()
		return true
	case requestTaken:
		l.state = requestLeft
	}
	return false
}

func (l *requestLife) expireAfter(d time.Duration, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != requestAnswered {
		l.timer = time.AfterFunc(d, f)
	}
}

// answer claims the right to answer, once. left says that the peer has given
// up meanwhile.
func (l *requestLife) answer() (left bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == requestAnswered {
		return false, fmt.Errorf("%w: the connection request was answered or dropped before", rdma.ErrNotConnected)
	}
	left = l.state == requestLeft
	l.finishLocked()
	return left, nil
}

func (l *requestLife) finishLocked() {
	l.state = requestAnswered
	if l.timer != nil {
		l.timer.Stop()
	}
}
