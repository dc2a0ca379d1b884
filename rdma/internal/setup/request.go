package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Queue holds the connection requests of a listener until the program
// takes them.
//
// It may be used by any number of goroutines at the same time.
type Queue[T any] struct {
	fabric string // for errors
	ch     chan T
	closed chan struct{}

	mu   sync.Mutex
	shut bool
}

// Init makes room for limit requests. Errors of Get name the fabric.
func (q *Queue[T]) Init(fabric string, limit int) {
	q.fabric, q.ch, q.closed = fabric, make(chan T, limit), make(chan struct{})
}

// Why Put fails. The peer is told these texts.
var (
	ErrFull   = errors.New("too many connection requests")
	ErrClosed = errors.New("listener closed")
)

// Put queues a request. It does not wait: if the queue is full or closed it fails
// with ErrFull or ErrClosed, and the request is still the caller's.
func (q *Queue[T]) Put(r T) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return ErrClosed
	}
	select {
	case q.ch <- r:
		return nil
	default:
		return ErrFull
	}
}

// Len is how many requests wait.
func (q *Queue[T]) Len() int { return len(q.ch) }

// Get waits for a request at the listener of that address. It fails with a
// rdma.OpError that wraps rdma.ErrClosed once the queue is closed, whatever waits in
// it; and with ctx.Err.
func (q *Queue[T]) Get(ctx context.Context, addr net.Addr) (r T, err error) {
	select {
	case <-q.closed:
		return r, q.over(addr)
	default:
	}
	select {
	case <-q.closed:
		return r, q.over(addr)
	case <-ctx.Done():
		return r, ctx.Err()
	case r = <-q.ch:
		return r, nil
	}
}

func (q *Queue[T]) over(addr net.Addr) error {
	return &rdma.OpError{Op: "accept", Fabric: q.fabric, Addr: addr.String(), Err: fmt.Errorf("%w: listener", rdma.ErrClosed)}
}

// Close takes no more requests. It returns false if it was called before.
func (q *Queue[T]) Close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return false
	}
	q.shut = true
	close(q.closed)
	return true
}

// Closed is closed by Close.
func (q *Queue[T]) Closed() <-chan struct{} { return q.closed }

// Rest returns the requests that no call of Get took. Call it after Close.
func (q *Queue[T]) Rest() (list []T) {
	for {
		select {
		case r := <-q.ch:
			list = append(list, r)
		default:
			return list
		}
	}
}

// A Life says what has become of a request and ensures that it is answered once. The
// zero value is that of a request which the fabric has just received. It may be used
// by any number of goroutines at the same time.
type Life struct {
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

// Take marks the request as the program's. It returns false if it was dropped meanwhile.
func (l *Life) Take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != requestQueued {
		return false
	}
	l.state = requestTaken
	return true
}

// Leave notes that the peer has given up. It returns true for a request that the
// program has not taken: the request is over then, and the caller frees what belongs
// to it.
func (l *Life) Leave() (over bool) {
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

// ExpireAfter has f called after d, unless the request is answered before.
func (l *Life) ExpireAfter(d time.Duration, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != requestAnswered {
		l.timer = time.AfterFunc(d, f)
	}
}

// Answer claims the right to answer, once. left says that the peer has given up
// meanwhile.
func (l *Life) Answer() (left bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == requestAnswered {
		return false, fmt.Errorf("%w: the connection request was answered or dropped before", rdma.ErrNotConnected)
	}
	left = l.state == requestLeft
	l.finishLocked()
	return left, nil
}

func (l *Life) finishLocked() {
	l.state = requestAnswered
	if l.timer != nil {
		l.timer.Stop()
	}
}
