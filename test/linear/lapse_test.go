package linear

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A mute is a store that answers nothing, and counts what it was asked.
type mute struct {
	mu    sync.Mutex
	asked map[bool]int // by whether it may have taken effect
}

func (m *mute) count(unknown bool, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[unknown] += n
}

func (m *mute) Do(_ context.Context, _ []byte, in *Input, _ int) (Output, error) {
	if m.count(in.Op.Writes(), 1); in.Op.Writes() {
		return Output{Unknown: true, Why: "who knows"}, nil
	}
	return Output{}, fmt.Errorf("%w: mute", ErrNothing)
}

func (m *mute) Batch(context.Context, [][]byte, *Input, int) (Output, error) {
	m.count(true, 1)
	return Output{Unknown: true, Why: "who knows"}, nil
}

func (m *mute) MultiGet(_ context.Context, keys [][]byte) ([]*Output, error) {
	m.count(false, len(keys))
	return make([]*Output, len(keys)), nil
}

func (m *mute) Scan(context.Context, []byte, bool) ([]Found, error) {
	m.count(false, 1)
	return nil, fmt.Errorf("%w: mute", ErrNothing)
}

// TestLapses: a workload tells of each call that had no answer, of whichever kind, with the time that it was given.
func TestLapses(t *testing.T) {
	m, told := &mute{asked: map[bool]int{}}, map[bool]int{}
	var mu sync.Mutex
	w := New(Config{
		Seed: *seedFlag, Ops: 2000, Stores: []Store{m}, Can: ClientCan, Timeout: time.Hour, ShortEvery: 10, ShortUpTo: time.Second, Done: func(*Object) {},
		Lapsed: func(l Lapse) {
			mu.Lock()
			defer mu.Unlock()
			told[l.Unknown]++
			short, patient := l.Given <= time.Second, l.Given > 59*time.Minute && l.Given <= time.Hour
			if !short && !patient || l.Why == "" || l.Stopped || l.Took < 0 || l.Took > time.Minute || !strings.HasPrefix(l.Key, "{") {
				t.Errorf("%v, %+v", l, l)
			}
		},
	})
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told[true] != m.asked[true] || told[false] != m.asked[false] || told[true] == 0 || told[false] == 0 {
		t.Errorf("told of %v, asked %v", told, m.asked)
	}
}

// A slow store takes a millisecond for each call.
type slow struct{ Store }

func (s slow) Do(ctx context.Context, key []byte, in *Input, size int) (Output, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Do(ctx, key, in, size)
}

func (s slow) Batch(ctx context.Context, keys [][]byte, in *Input, size int) (Output, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Batch(ctx, keys, in, size)
}

func (s slow) MultiGet(ctx context.Context, keys [][]byte) ([]*Output, error) {
	time.Sleep(time.Millisecond)
	return s.Store.MultiGet(ctx, keys)
}

// TestReadersOnlyRead: workers that are readers get, in every way there is, and write nothing; the others write. In virtual time all of them have their turns.
func TestReadersOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reads, writes := map[int]int{}, map[int]int{}
		w := New(Config{Seed: *seedFlag, Ops: 5000, Stores: []Store{slow{newFake(*seedFlag, "")}}, Workers: 2, Readers: 3, Can: ClientCan, Done: func(o *Object) {
			mu.Lock()
			defer mu.Unlock()
			for _, op := range o.Ops {
				if op.In.Op == OpGet || op.In.Op == OpPeek {
					reads[op.Client]++
				} else {
					writes[op.Client]++
				}
			}
		}})
		if err := errors.Join(w.Run(t.Context()), w.Finish(t.Context())); err != nil {
			t.Fatal(err)
		}
		for id := range 5 {
			if reads[id] == 0 || (writes[id] > 0) != (id < 2) {
				t.Errorf("worker %d of 2 writers and 3 readers reads %d times and writes %d times", id, reads[id], writes[id])
			}
		}
		t.Logf("reads %v, writes %v", reads, writes)
	})
}
