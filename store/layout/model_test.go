package layout

import (
	"encoding/binary"
	"flag"
	"fmt"
	"sync"
	"testing"
)

// An mreader is one client: a Lookup, its own Dir, and the words of its batch
// that are still to be sampled.
type mreader struct {
	l       Lookup
	dirs    [3]*Dir // one is used at a time, so that the others grow old
	k       *mkey
	lo      int // the oldest write that this get may return
	started int
	active  bool
	expired bool
	asking  bool
	rest    int // clock until which it rests
	todo    []sample
	batch   int // words of it, at its beginning
	// Words come in any order; in some batches those at the head of a bucket
	// or an item mostly first, in some mostly last.
	bias  int
	heads bool
	bufs  [MaxCandidates][PageSize]byte
}

type sample struct{ read, word int }

// tally is what a run met: a run that met too little proved too little.
type tally struct {
	ops, growths, reuses, gets, expired int
	found, absent, asked                int
	counts                              Counts
	reasons                             [NumReasons]int
}

// tickReader samples the next word, or steps the Lookup. An error is a
// violation.
func (w *world) tickReader(r *mreader) error {
	switch {
	case !r.active:
		w.startGet(r)
	case r.asking:
		if w.busy() {
			return nil
		}
		return w.endGet(r, r.k.newest, !r.k.present())
	case len(r.todo) > 0:
		// Pages of the directory in larger bites: their words are hints.
		for range max(1, len(r.todo)/16) {
			i := w.r.IntN(len(r.todo))
			for range 4 * r.bias { // look for a word of the sort that comes first
				if (r.todo[i].word%(BucketSize/wordSize) == 0) == r.heads {
					break
				}
				i = w.r.IntN(len(r.todo))
			}
			s := r.todo[i]
			r.todo[i] = r.todo[len(r.todo)-1]
			r.todo = r.todo[:len(r.todo)-1]
			rd := &r.l.Reads[s.read]
			copy(rd.Buf[s.word*wordSize:][:wordSize], w.mem[rd.Place.Byte()+uint64(s.word*wordSize):])
		}
	default:
		return w.stepGet(r)
	}
	return nil
}

func (w *world) startGet(r *mreader) {
	r.k = w.keys[w.r.IntN(len(w.keys))]
	r.lo = max(r.k.acked, r.k.returned)
	r.active, r.expired, r.asking, r.started = true, false, false, w.clock
	var cached Loc
	if w.r.IntN(3) == 0 { // any place: the key may have been there once
		cached = Loc{Place: w.cellPlace(w.r.IntN(w.ncell)), Size: worldCellSize}
	}
	r.l.PairByPair = w.clock&1 != 0 // no draw of its own: what seeds have found they find again
	r.l.Start(&w.view, r.dirs[w.r.IntN(len(r.dirs))], 0, r.k.name, cached, 1<<20)
}

func (w *world) stepGet(r *mreader) error {
	switch a := r.l.Step(); a {
	case ActionRead:
		r.bias, r.heads = w.r.IntN(2), w.r.IntN(2) == 0
		for i := range r.l.Reads {
			rd := &r.l.Reads[i]
			if _, _, ok := w.view.Locate(rd.Place, int(rd.Len)); !ok || rd.Len > PageSize {
				return fmt.Errorf("READ of %d bytes at %v", rd.Len, rd.Place)
			}
			rd.Buf = r.bufs[i][:rd.Len]
			for j := range int(rd.Len) / wordSize {
				r.todo = append(r.todo, sample{i, j})
			}
		}
		r.batch = len(r.todo)
		return nil
	case ActionFound:
		v, loc := r.l.Found()
		if v.Value()[0] != r.k.id || loc.Size != worldCellSize || v.State != Live {
			return fmt.Errorf("key %d: found %v %q", r.k.id, v.State, v.Value())
		}
		w.tally.found++
		return w.endGet(r, int(binary.LittleEndian.Uint32(v.Value()[1:])), false)
	case ActionAbsent:
		w.tally.absent++
		return w.endGet(r, 0, true)
	case ActionAsk:
		w.tally.asked++
		w.tally.reasons[r.l.Reason]++
		r.asking = true
		return nil
	default:
		return fmt.Errorf("action %v", a)
	}
}

func (w *world) endGet(r *mreader, n int, absent bool) error {
	c, t := &r.l.Counts, &w.tally.counts
	for _, p := range [][2]*uint32{{&t.Reads, &c.Reads}, {&t.Rounds, &c.Rounds}, {&t.Stale, &c.Stale},
		{&t.Torn, &c.Torn}, {&t.Pending, &c.Pending}, {&t.Dead, &c.Dead}, {&t.Mismatch, &c.Mismatch},
		{&t.Misfit, &c.Misfit}, {&t.Marked, &c.Marked}, {&t.Proofs, &c.Proofs}} {
		*p[0] += *p[1]
	}
	r.active = false
	w.tally.gets++
	if r.expired {
		w.tally.expired++ // the lease ran out: the answer does not count
		return nil
	}
	if err := r.k.check(r.lo, n, absent); err != nil {
		return fmt.Errorf("tick %d, get since tick %d: %w; asked %v, met %+v", w.clock, r.started, err, r.asking, *c)
	}
	return nil
}

// run lets writer and readers take turns. Each rests now and then, for longer
// than the others need for a whole operation: the writer between two steps,
// most of all when an item is written and not yet live; a reader between two
// words, most of all behind the first of a batch.
func (w *world) run(ticks, readers int) error {
	for range readers {
		r := &mreader{}
		for i := range r.dirs {
			r.dirs[i] = NewDir(&w.view)
		}
		w.readers = append(w.readers, r)
	}
	for range ticks {
		w.clock++
		who := w.r.IntN(readers + 1)
		if who == readers {
			w.turnOfWriter()
			continue
		}
		if r := w.readers[who]; w.clock >= r.rest {
			if err := w.tickReader(r); err != nil {
				return err
			}
			switch x := w.r.IntN(2000); {
			case x == 0:
				r.rest = w.clock + w.r.IntN(5000)
			case x < 60, x < 500 && len(r.todo) == r.batch-1:
				r.rest = w.clock + w.r.IntN(300)
			}
		}
	}
	return nil
}

func (w *world) turnOfWriter() {
	if w.clock < w.rest {
		return
	}
	w.tickWriter()
	if len(w.stores) > 0 {
		return
	}
	// A step is complete.
	switch x := w.r.IntN(200); {
	case x == 0:
		w.rest = w.clock + w.r.IntN(5000)
	case x < 20, x < 60 && len(w.steps) == 4: // pending: dead, swing, live and acknowledgement to come
		w.rest = w.clock + w.r.IntN(200)
	}
}

// twinKeys are keys of which the second has the fingerprint of the first and
// shares a bucket with it in the first segment: what a slot shows does not
// tell them apart.
var twinKeys = sync.OnceValue(func() [][]byte {
	first := []byte("key-0000")
	h := HashKey(modelHashSeed, first)
	a, b := h.Mains(SegmentGroups(0))
	name := []byte("key-0000")
	for i := uint64(0); ; i++ {
		binary.LittleEndian.PutUint64(name, i)
		g := HashKey(modelHashSeed, name)
		if g.Fingerprint() != h.Fingerprint() {
			continue
		}
		c, d := g.Mains(SegmentGroups(0))
		if a == c || a == d || b == c || b == d {
			return [][]byte{first, name, []byte("key-0001"), []byte("key-0002")}
		}
	}
})

const modelHashSeed = 12345

var (
	modelSeed   = flag.Uint64("model.seed", 1, "first seed of the model test")
	modelWorlds = flag.Int("model.worlds", 0, "worlds in the model test; 0: the usual number")
)

const (
	modelTicks   = 20000
	modelReaders = 3
)

// runModel runs that many worlds and returns the first violation.
func runModel(firstSeed uint64, worlds int, bug bug, total *tally) error {
	for i := range uint64(worlds) {
		seed := firstSeed + i
		recovering := seed%2 == 1
		w := newWorld(seed, modelHashSeed, twinKeys(), 4+int(seed%3), recovering)
		if w.bug = bug; bug == bugReuseAtOnce {
			w.growth = 20 // or it would take a minute to find it
		}
		ticks := modelTicks
		if recovering {
			ticks /= 4 // the fill is soon over
		}
		err := w.run(ticks, modelReaders)
		total.add(&w.tally)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return nil
}

func (t *tally) add(o *tally) {
	t.ops += o.ops
	t.growths += o.growths
	t.reuses += o.reuses
	t.gets += o.gets
	t.expired += o.expired
	t.found += o.found
	t.absent += o.absent
	t.asked += o.asked
	for i := range o.reasons {
		t.reasons[i] += o.reasons[i]
	}
	c, d := &t.counts, &o.counts
	c.Reads += d.Reads
	c.Rounds += d.Rounds
	c.Stale += d.Stale
	c.Torn += d.Torn
	c.Pending += d.Pending
	c.Dead += d.Dead
	c.Mismatch += d.Mismatch
	c.Misfit += d.Misfit
	c.Marked += d.Marked
	c.Proofs += d.Proofs
}

// TestModel is the proof that the rules hold in code: every answer of every
// get, in any interleaving that the seeds give, is one that a register with one
// writer could have given.
func TestModel(t *testing.T) {
	worlds := 600
	switch {
	case *modelWorlds > 0:
		worlds = *modelWorlds
	case testing.Short(), raceDetector:
		worlds = 60
	}
	var sum tally
	if err := runModel(*modelSeed, worlds, bugNone, &sum); err != nil {
		t.Fatalf("%v\nreplay: go test -run TestModel -args -model.worlds=1 -model.seed=…", err)
	}
	t.Logf("%+v", sum)
	if worlds < 60 {
		return // a replay
	}
	// It must have met everything that it is there to survive.
	c := sum.counts
	for what, n := range map[string]int{
		"torn": int(c.Torn), "pending": int(c.Pending), "dead": int(c.Dead), "mismatch": int(c.Mismatch),
		"misfit": int(c.Misfit), "marked": int(c.Marked), "stale": int(c.Stale), "proofs": int(c.Proofs),
		"growths": sum.growths, "reuses": sum.reuses, "expired": sum.expired,
		"slotless": sum.reasons[ReasonSlotless], "pebble": sum.reasons[ReasonPebble], "retries": sum.reasons[ReasonRetries],
	} {
		if n == 0 {
			t.Errorf("no get met %q", what)
		}
	}
	if sum.gets < 20*worlds {
		t.Errorf("only %d gets in %d worlds", sum.gets, worlds)
	}
}
