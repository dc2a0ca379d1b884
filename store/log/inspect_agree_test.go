package log_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// TestInspectAgrees: Inspect reads a log with code of its own, and comes to what a start
// comes to: after power cuts, and with a byte flipped anywhere. Replay must not find a
// record that Inspect does not tell of a segment that counts, nor the other way round.
func TestInspectAgrees(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	ends := map[log.Ending]int{}
	damaged := 0
	for seed := range seeds {
		for _, policy := range []log.Sync{log.Always, log.Off} {
			name := fmt.Sprintf("seed %d, %v", seed, policy)
			rnd := rand.New(rand.NewPCG(seed, uint64(policy)))
			d := logtest.New(logtest.Options{NoDirect: rnd.IntN(2) == 0})
			for life := range 1 + rnd.IntN(3) {
				d = liveAndCrash(t, d, policy, rnd, life)
			}
			if rnd.IntN(2) == 0 || seed%4 == 0 {
				names := d.Names()
				file := names[rnd.IntN(len(names))]
				if b, err := d.Contents(file); err == nil && len(b) > 0 {
					// Most of a segment is not used: half of the flips hit its beginning.
					off := rnd.Int64N(int64(len(b)))
					if rnd.IntN(2) == 0 {
						off = rnd.Int64N(min(int64(len(b)), 40<<10))
					}
					if seed%4 == 0 {
						// What the other flips hit depends on how far the writes came. This
						// one is in a header, or in a copy of LIFE.
						off %= 100
					}
					name += fmt.Sprintf(", byte %d of %s flipped", off, file)
					if err := d.Flip(file, off, byte(1+rnd.IntN(255))); err != nil {
						t.Fatal(err)
					}
				}
			}
			told, in := inspected(t, d, ends)
			replayed, end, err := replayedOf(d, policy)
			if err != nil {
				damaged++
			}
			switch {
			case (err != nil) != (in.ProblemCount > 0):
				t.Errorf("%s: replay says %v, Inspect %v", name, err, in.Problems)
			case err == nil && (in.End != end || len(told) != len(replayed)):
				t.Errorf("%s: replay finds %d records up to %v, Inspect %d up to %v", name, len(replayed), end, len(told), in.End)
			case err == nil:
				for i := range told {
					if told[i] != replayed[i] {
						t.Fatalf("%s: record %d is at %v, Inspect says %v", name, i, replayed[i], told[i])
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("segments end so: %v; %d logs of %d are damaged", ends, damaged, 2*seeds)
	if ends[log.Last] == 0 || ends[log.Cut] == 0 || ends[log.Full] == 0 || damaged == 0 || damaged == 2*int(seeds) {
		t.Error("the seeds do not reach all that there is")
	}
}

// liveAndCrash opens the log, writes to it and takes its power away in the middle.
func liveAndCrash(t *testing.T, d *logtest.Disk, policy log.Sync, rnd *rand.Rand, life int) *logtest.Disk {
	t.Helper()
	c := small(d)
	c.Sync = policy
	l, err := log.Open(c)
	if err == nil {
		err = l.Replay(nil)
	}
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, calls := d.Calls()
	d.CrashAt(calls + 5 + rnd.IntN(60))
	for i := 0; err == nil; i++ {
		body := make([]byte, rnd.IntN(60<<10))
		_, err = l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body}, write(2, "life %d, write %d", life, i))
		if i > 200 {
			d.PowerOff()
		}
	}
	if closed := l.Close(false); closed != nil && !errors.Is(closed, log.ErrFailed) && !d.Dead() {
		t.Fatal(closed)
	}
	return d.Crash(rnd.Uint64())
}

// inspected returns the positions of the records of segments that count, as Inspect tells.
func inspected(t *testing.T, d *logtest.Disk, ends map[log.Ending]int) (told []log.Position, in log.Inspection) {
	t.Helper()
	var segment []log.Position
	in, err := log.Inspect(t.Context(), d, log.InspectOptions{
		Record: func(r log.Record) error { segment = append(segment, r.Position); return nil },
		Segment: func(s log.InspectedSegment) error {
			ends[s.Ending]++
			if s.Ending != log.Void {
				told = append(told, segment...)
			}
			segment = segment[:0]
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return told, in
}

// replayedOf returns the positions of the records that a start finds, and the end.
func replayedOf(d *logtest.Disk, policy log.Sync) (found []log.Position, end log.Position, err error) {
	c := small(d)
	c.Sync, c.ReadOnly = policy, true
	l, err := log.Open(c)
	if err != nil {
		return nil, 0, err
	}
	err = l.Replay(func(r *log.Record) error { found = append(found, r.Position); return nil })
	return found, l.Found().End, errors.Join(err, l.Close(false))
}
