package log_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// history is one log through several lives, each of which ends by a clean stop, a kill, or
// a power cut at some call. What happens follows from the seed, but for how the log's own
// goroutines come between.
func history(k kind, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 4))
	d := logtest.New(logtest.Options{Seed: seed, NoDirect: k.noDirect, Block: []int{512, 4096, 16384}[rnd.IntN(3)]})
	m, killed := &model{}, false
	for life := range 3 + rnd.IntN(5) {
		if rnd.IntN(3) == 0 {
			d.OnCall(overlap())
		}
		if rnd.IntN(3) != 0 {
			d.CrashAt(1 + rnd.IntN(90))
		}
		fail := func(err error) error { return fmt.Errorf("life %d: %w", life+1, err) }
		r, err := m.open(config(d, k.sync), killed, seed)
		if err == nil {
			err = r.some(k, rnd)
		}
		if err != nil && !crashed(err) {
			r.end()
			return fail(err)
		}
		end := rnd.IntN(4)
		if err == nil && end == 0 {
			if err = r.Close(true); err == nil {
				killed = false
				if n := len(m.frames); n > 0 {
					m.mark(m.frames[n-1].id, true)
				}
				d = d.Clone()
				continue
			}
			if !crashed(err) {
				return fail(err)
			}
		}
		old := d
		// A process that a power cut has not ended can be killed: the kernel goes on.
		if killed = err == nil && end < 3; killed {
			d = d.Kill(rnd.Uint64())
		} else {
			d = d.Crash(rnd.Uint64N(1 << 20))
		}
		r.end()
		if n := old.Handles(); n != 0 {
			return fail(fmt.Errorf("%w: %d files were left open", errWrong, n))
		}
	}
	r, err := m.open(config(d, k.sync), killed, seed)
	if err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return r.Close(false)
}

// some does what chance says for a while.
func (r *run) some(k kind, rnd *rand.Rand) error {
	always := k.sync == log.Always
	for range rnd.IntN(12) {
		r.size = []int{60, 5000, 100 << 10, 230 << 10}[rnd.IntN(4)]
		var err error
		switch rnd.IntN(8) {
		case 0:
			err = r.sync()
		case 1:
			r.release(rnd.IntN(10))
		case 2:
			err = r.trimAll(always)
		case 3, 4:
			err = r.put(always)
		default:
			err = r.pair(1+rnd.IntN(4), always)
		}
		if errors.Is(err, log.ErrFull) {
			if err = errors.Join(r.sync(), r.trimAll(always)); err == nil {
				r.release(1)
				time.Sleep(time.Millisecond) // the log gives segments back meanwhile
			}
		}
		if err != nil && !errors.Is(err, log.ErrFull) {
			return err
		}
	}
	return nil
}
