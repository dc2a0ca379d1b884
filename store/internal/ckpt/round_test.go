package ckpt

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/log"
)

// started runs one round on a goroutine of its own.
func (r *rig) started() (over chan error) {
	over = make(chan error, 1)
	go func() {
		_, err := r.round(context.Background(), false)
		over <- err
	}()
	return over
}

// TestOrderOfARound stops a round at each of its steps, and looks at what is true there.
func TestOrderOfARound(t *testing.T) {
	r := newRig(t, nil)
	r.write(10, write{shard: 0, key: "first"})
	first := r.log.Stats().Passed
	r.fill(3 * segment)
	const second = 1_700_000_000
	r.write(10, write{shard: 2, key: "late", expiry: second * 1_000_000}, write{shard: 1, key: "late"})
	for _, sh := range r.shards {
		sh.TakeRelisted()
	}
	passed := r.log.Stats().Passed // an idle log adds empty frames by itself
	var dirty [shards]int
	for i, sh := range r.shards {
		dirty[i], _ = sh.DirtyCounts()
	}
	// The base does not show the range yet: all keys are in their sets, nothing is listed.
	checked := false
	r.begin = func() error {
		checked = true
		for i, sh := range r.shards {
			if n, _ := sh.DirtyCounts(); n != dirty[i] || n == 0 {
				t.Errorf("shard %d has %d keys that are newer than the base when the ingest begins, and had %d", i, n, dirty[i])
			}
			if s := sh.TakeRelisted(); s != clock.NeverDue {
				t.Errorf("shard %d is told of second %d before the base lists it", i, s)
			}
		}
		r.shards[1].Mu.Lock() // it stops the round behind shard 0
		return nil
	}
	// The base shows it, shard 0 is through, and the others are not.
	over := r.started()
	waitFor(t, "the first shard", func() bool { n, _ := r.shards[0].DirtyCounts(); return n == 0 || len(over) > 0 })
	if r.inBase().At == 0 || !checked {
		t.Error("a key has left its set, and the base does not show it")
	}
	if p := r.Place(); p.At != 0 {
		t.Errorf("the place is %v while shard 1 has keys before it", p.At)
	}
	release, err := r.Hold()
	if err != nil {
		t.Fatal(err)
	}
	release()
	// Whatever would be released is gone by now: the retirer is told so once more.
	r.log.Release(stream, 0)
	if again := r.log.Stats(); again.Segments < 4 {
		t.Errorf("%d segments in force while shard 1 needs them", again.Segments)
	}
	r.shards[1].Mu.Unlock()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	for i, sh := range r.shards {
		want := uint64(clock.NeverDue)
		if i == 2 {
			want = second
		}
		if n, _ := sh.DirtyCounts(); n != 0 {
			t.Errorf("shard %d has %d keys", i, n)
		}
		if s := sh.TakeRelisted(); s != want {
			t.Errorf("shard %d is told of second %d, want %d", i, s, want)
		}
	}
	if p := r.Place(); p != r.inBase() || p.At < passed || p.Newest != r.next-1 {
		t.Errorf("the place is %+v, that of the base %+v", p, r.inBase())
	}
	waitFor(t, "segments to be given back", func() bool { return r.log.Stats().Segments == 1 })
	if _, err := r.log.Hold(first); !errors.Is(err, log.ErrDamaged) {
		t.Errorf("what the base has is held: %v", err)
	}
}

// TestHoldIsNotRaced: whoever finds a key in a set gets its record, whatever round ends meanwhile.
func TestHoldIsNotRaced(t *testing.T) {
	r := newRig(t, nil)
	rng := seeded(t)
	stop := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				over <- nil
				return
			default:
			}
			if _, err := r.round(context.Background(), false); err != nil {
				over <- err
				return
			}
		}
	}()
	read := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					read <- nil
					return
				default:
				}
				if _, err := r.read(1, "k"); err != nil {
					read <- err
					return
				}
			}
		}()
	}
	for range 300 {
		r.fill(64 << 10 * rng.IntN(4))
		r.write(100, write{shard: 1, key: "k"})
		if len(read) > 0 {
			break
		}
	}
	close(stop)
	if err := errors.Join(<-read, <-read, <-over); err != nil {
		t.Error(err)
	}
	if s := r.Stats(); s.Checkpoints == 0 || r.log.Stats().Recycled+r.log.Stats().Removed == 0 {
		t.Errorf("%d rounds, %d segments given back: nothing was tried", s.Checkpoints, r.log.Stats().Recycled)
	}
}
