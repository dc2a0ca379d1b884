package linear

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// A Ladder is a key whose value is a number that one writer raises, and readers that may be late, by Bound at most (client.ReadBounded). No history is judged
// here, but each answer at once:
//
//	put 7 acknowledged ──────── Bound ────────▶ a get that begins here or later shows 7 or more
//	a reader's get shows 9                   ▶ his next one shows 9 or more
//	nothing shows more than what was put
//
// A put of which it is not known whether it was done could take effect behind the next one. So the writer goes on with another key then.
type Ladder struct {
	Key   func(round int) []byte // of each round another one
	Bound time.Duration
	Pause time.Duration // of the writer between two puts, and a reader between two gets

	mu    sync.Mutex
	round int
	rungs []rung // of the round, acknowledged, in order
	put   uint64 // the highest number that was put in the round
	gets  int
	stale int // gets that have shown less than what was acknowledged when they began
	err   error
}

type rung struct {
	n  uint64
	at time.Time // when the acknowledgement was there
}

// rungsKept is how many acknowledged puts are remembered: those that are older than the bound by far do not matter.
const rungsKept = 4096

// Climb puts numbers until ctx ends. put puts a value under a key; known false: it may have taken effect, or may yet.
func (l *Ladder) Climb(ctx context.Context, put func(ctx context.Context, key, value []byte) (known bool, err error)) {
	for round := 0; ctx.Err() == nil; round++ {
		l.mu.Lock()
		l.round, l.rungs, l.put = round, nil, 0
		l.mu.Unlock()
		key := l.Key(round)
		for n := uint64(1); ctx.Err() == nil; n++ {
			l.mu.Lock()
			l.put = n
			l.mu.Unlock()
			known, err := put(ctx, key, binary.BigEndian.AppendUint64(nil, n))
			if !known {
				break
			}
			if err == nil {
				l.mu.Lock()
				if l.rungs = append(l.rungs, rung{n, time.Now()}); len(l.rungs) > rungsKept {
					l.rungs = append(l.rungs[:0], l.rungs[rungsKept/2:]...)
				}
				l.mu.Unlock()
			}
			sleep(ctx, l.Pause)
		}
	}
}

// Watch gets until ctx ends, as one reader. get returns the value of a key, nil: there is none. An answer that fails says nothing.
func (l *Ladder) Watch(ctx context.Context, get func(ctx context.Context, key []byte) ([]byte, error)) {
	shown, of := uint64(0), -1
	for ctx.Err() == nil {
		l.mu.Lock()
		round, least, newest := l.round, uint64(0), uint64(0)
		begun := time.Now()
		for i := len(l.rungs) - 1; i >= 0; i-- {
			if newest = max(newest, l.rungs[i].n); !l.rungs[i].at.After(begun.Add(-l.Bound)) {
				least = l.rungs[i].n
				break
			}
		}
		l.mu.Unlock()
		value, err := get(ctx, l.Key(round))
		n := uint64(0)
		if len(value) == 8 {
			n = binary.BigEndian.Uint64(value)
		}
		if of != round {
			shown, of = 0, round
		}
		l.mu.Lock()
		if err == nil {
			l.gets++
			if n < newest {
				l.stale++
			}
			switch {
			case l.err != nil:
			case value != nil && len(value) != 8:
				l.err = fmt.Errorf("a value of %d bytes, none such was put", len(value))
			case n < least:
				l.err = fmt.Errorf("a get with a bound of %v shows %d, and %d had been acknowledged for longer when it began", l.Bound, n, least)
			case n < shown:
				l.err = fmt.Errorf("a get with a bound shows %d, and the same reader has seen %d", n, shown)
			case round == l.round && n > l.put:
				l.err = fmt.Errorf("a get shows %d, and %d was put last", n, l.put)
			}
			shown = max(shown, n)
		}
		l.mu.Unlock()
		sleep(ctx, l.Pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Result is how many gets there were, how many of them were late at all, and the first answer that must not be.
func (l *Ladder) Result() (gets, stale int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gets, l.stale, l.err
}
