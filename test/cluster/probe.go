package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// A Caller is as much of a client as a probe needs.
type Caller interface {
	Get(ctx context.Context, key []byte, opts ...client.ReadOption) ([]byte, error)
	Put(ctx context.Context, key, value []byte) error
}

// ProbeOptions say what a probe calls.
type ProbeOptions struct {
	Name   string // caller and node: "c1 to n2"
	Client Caller
	Keys   [][]byte      // all of one node, and of no other
	Limit  time.Duration // deadline of each call
	Pace   time.Duration // rest between two calls
}

// A Probe puts and gets keys of one node, one call after the other, and keeps the
// books. Its methods are safe for concurrent use.
type Probe struct {
	o      ProbeOptions
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	sum    Tally
	change chan struct{} // closed and made anew after every call
	row    int           // calls that succeeded one after the other until now
	wrong  []string
}

// A Tally counts calls.
type Tally struct {
	Calls, Failed int
	Begun         int            // Calls, and the one under way
	Classes       map[string]int // of errors
	Last          string         // error
	Longest       time.Duration
}

// StartProbe begins to call, until Stop.
func StartProbe(ctx context.Context, o ProbeOptions) *Probe {
	p := &Probe{o: o, done: make(chan struct{}), change: make(chan struct{}), sum: Tally{Classes: map[string]int{}}}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		p.run(ctx)
	}()
	return p
}

// A probed key is what is known of one.
type probed struct {
	key   []byte
	acked uint64 // sequence number that the last put with an answer wrote
	tried uint64
	loose map[uint64]bool // written or not: unknown
}

func (p *Probe) run(ctx context.Context) {
	var all []*probed
	for _, k := range p.o.Keys {
		all = append(all, &probed{key: k, loose: map[uint64]bool{}})
	}
	for i := 0; ctx.Err() == nil; i++ {
		k := all[i/2%len(all)]
		if i%2 == 0 {
			k.tried++
			err := p.call(ctx, "put", func(ctx context.Context) error { return p.o.Client.Put(ctx, k.key, k.value(k.tried)) })
			switch {
			case err == nil:
				k.acked = k.tried
			case errors.Is(err, client.ErrOutcomeUnknown):
				k.loose[k.tried] = true
			}
		} else {
			_ = p.call(ctx, "get", func(ctx context.Context) error {
				b, err := p.o.Client.Get(ctx, k.key)
				if wrong := k.judge(b, err); wrong != nil {
					p.note(wrong)
				} else if errors.Is(err, client.ErrNotFound) {
					return nil // rightly so
				}
				return err
			})
		}
		pause(ctx, p.o.Pace)
	}
}

func (k *probed) value(seq uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, seq), k.key...)
}

// judge says what is wrong with the result of a get.
func (k *probed) judge(b []byte, err error) error {
	switch {
	case errors.Is(err, client.ErrNotFound):
		if k.acked == 0 {
			return nil
		}
		return fmt.Errorf("%q is not there, and number %d was acknowledged", k.key, k.acked)
	case err != nil:
		return nil
	case len(b) < 8 || string(b[8:]) != string(k.key):
		return fmt.Errorf("%q has a value of %d bytes that nobody wrote", k.key, len(b))
	}
	if seq := binary.LittleEndian.Uint64(b); (seq < k.acked || seq > k.tried) && !k.loose[seq] {
		return fmt.Errorf("%q has number %d, acknowledged was %d, the last one tried %d", k.key, seq, k.acked, k.tried)
	}
	return nil
}

// call makes one call and books it. What ends because the probe ends is no call.
func (p *Probe) call(ctx context.Context, op string, f func(context.Context) error) error {
	p.mu.Lock()
	p.sum.Begun++
	p.mu.Unlock()
	start := time.Now()
	call, cancel := context.WithTimeout(ctx, p.o.Limit)
	err := f(call)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.sum
	s.Calls++
	s.Longest = max(s.Longest, time.Since(start))
	p.row++
	if err != nil {
		s.Failed++
		s.Classes[class(err)]++
		s.Last = fmt.Sprintf("%s: %v", op, err)
		p.row = 0
	}
	close(p.change)
	p.change = make(chan struct{})
	return err
}

func (p *Probe) note(wrong error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, wrong.Error())
}

// classes are the errors that a caller may rely on when a node is away.
var classes = []struct {
	err  error
	name string
}{
	{client.ErrOutcomeUnknown, "outcome unknown"},
	{client.ErrTimeout, "timeout"},
	{client.ErrUnavailable, "unavailable"},
	{client.ErrOverloaded, "overloaded"},
	{client.ErrClosed, "closed"},
	{client.ErrAuth, "auth"},
}

// untyped is the class of errors that no caller can be told to expect.
const untyped = "untyped"

// class names an error.
func class(err error) string {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return untyped
}

// Tally is what was booked so far.
func (p *Probe) Tally() Tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.sum
	t.Classes = maps.Clone(t.Classes)
	return t
}

// Since is what was booked after an earlier tally, but for Last and Longest, which
// are of all.
func (p *Probe) Since(before Tally) Tally {
	t := p.Tally()
	t.Calls -= before.Calls
	t.Begun -= before.Begun
	t.Failed -= before.Failed
	for name, n := range before.Classes {
		if t.Classes[name] -= n; t.Classes[name] == 0 {
			delete(t.Classes, name)
		}
	}
	return t
}

// WaitWell waits until n calls that began after now have succeeded, one after the
// other.
func (p *Probe) WaitWell(ctx context.Context, n int) error {
	return p.wait(ctx, "succeed", func(since Tally) bool { return p.row >= n && since.Calls > n })
}

// WaitFailed waits until a call that began after now has failed.
func (p *Probe) WaitFailed(ctx context.Context) error {
	return p.wait(ctx, "fail", func(since Tally) bool { return since.Calls > 1 && p.row == 0 })
}

// wait waits until something is so. Of what is booked since now the first call may
// have begun earlier.
func (p *Probe) wait(ctx context.Context, what string, is func(since Tally) bool) error {
	before := p.Tally()
	for {
		p.mu.Lock()
		since := Tally{Calls: p.sum.Calls - before.Calls}
		yes, change, last := is(since), p.change, p.sum.Last
		p.mu.Unlock()
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: calls still do not %s after %d of them; last error: %s", p.o.Name, what, since.Calls, last)
		case <-change:
		}
	}
}

// Stop ends the calls, and returns the books and every wrong answer.
func (p *Probe) Stop() (Tally, []string) {
	p.cancel()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum, p.wrong
}

// String is a line about the tally.
func (t Tally) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, t.Classes[name]))
	}
	return fmt.Sprintf("%d calls, %d failed (%s), the longest took %v", t.Calls, t.Failed, strings.Join(parts, ", "), t.Longest.Round(time.Millisecond))
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
