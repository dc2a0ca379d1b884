package ibv

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// A handle is the address of an object of rdma-core. Go code never follows it.
type handle uintptr

// An object is what every wrapper of an object of rdma-core has.
//
// Close may race with every other method: a method that uses h holds mu for
// reading, for no longer than one call into C, and the one that destroys it
// holds mu for writing. That is two atomic operations per batch on the data
// path, and a closed object answers ErrClosed instead of crashing.
//
// Lock order: several objects are locked in the order of their keys; an object
// is created after what it is made of, so a parent comes before its children.
type object struct {
	key  uint64 // unique in this process; how C names the object to Go
	mu   sync.RWMutex
	h    handle // 0 once it is closed
	kids kids
}

var lastKey atomic.Uint64

func newKey() uint64 { return lastKey.Add(1) }

// use locks o for reading; the caller unlocks it with o.mu.RUnlock. It fails
// with ErrClosed, and has locked nothing then.
func (o *object) use() error {
	o.mu.RLock()
	if o.h == 0 {
		o.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

// destroy ends o by calling f, once: later calls do nothing. While others are
// made of o it fails with EBUSY, as rdma-core would or, for some objects, does
// not (ibv_close_device frees what its children point to).
func (o *object) destroy(call string, f func(handle) syscall.Errno) (done bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.h == 0 {
		return false, nil
	}
	if s := o.kids.String(); s != "" {
		return false, &CallError{Call: call, Errno: syscall.EBUSY, Hint: "close first: " + s}
	}
	if errno := f(o.h); errno != 0 {
		return false, callError(call, errno)
	}
	o.h = 0
	return true, nil
}

// useAll locks several objects for reading, each once, in the order of their
// keys: two read locks of one RWMutex by one goroutine, or two of them in
// different orders, deadlock with writers between them.
func useAll(objs ...*object) (release func(), err error) {
	slices.SortFunc(objs, func(a, b *object) int { return cmp.Compare(a.key, b.key) })
	objs = slices.Compact(objs)
	for i, o := range objs {
		if err := o.use(); err != nil {
			unuse(objs[:i])
			return nil, err
		}
	}
	return func() { unuse(objs) }, nil
}

func unuse(objs []*object) {
	for _, o := range objs {
		o.mu.RUnlock()
	}
}

// kids counts the open objects that are made of another, by kind.
type kids struct {
	mu sync.Mutex
	n  map[string]int
}

func (k *kids) add(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n == nil {
		k.n = map[string]int{}
	}
	k.n[kind]++
}

func (k *kids) done(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n[kind]--; k.n[kind] <= 0 {
		delete(k.n, kind)
	}
}

// String is "2 CQ, 1 PD", or empty if there are none.
func (k *kids) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []string
	for kind, n := range k.n {
		list = append(list, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// A registry finds the object that C names by its key. C never holds a pointer
// into Go's memory, and an event of an object that was closed meanwhile finds
// nothing.
type registry[T any] struct {
	mu sync.Mutex
	m  map[uint64]*T
}

func (r *registry[T]) put(key uint64, t *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[uint64]*T{}
	}
	r.m[key] = t
}

func (r *registry[T]) get(key uint64) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m[key]
}

func (r *registry[T]) drop(key uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, key)
}

// These are the objects that events can name. There is one rdma-core per
// process, so there is one registry of each.
var (
	liveCQs  registry[CQ]
	liveSRQs registry[SRQ]
	liveQPs  registry[QP]
	liveIDs  registry[CMID]
)
