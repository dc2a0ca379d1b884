package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

var moveBytes = flag.Int64("move-bytes", 0, "bytes of values that TestMoveCost moves; 0: it moves none")

// moveRate is what the nodes of TestMoveCost take of a replica in a second, the default of cluster.move_rate.
const moveRate = 64 << 20

// TestMoveCost measures what a move costs and how long it takes: one group with -move-bytes of values of 4 KiB goes from one node to an empty one, at the
// default rate, while 16 callers get keys one after the other without a pause (make nightly: 1 GiB). It fails if a get does or shows another value
// than the key has, or if the replicas are not alike behind the move; no time is asserted. Every ratio is printed.
func TestMoveCost(t *testing.T) {
	if *moveBytes == 0 {
		t.Skip("measures, and moves -move-bytes: make nightly")
	}
	memory := *moveBytes + *moveBytes/2 + 256<<20
	w := newWorld(t, func(o *Options) {
		o.Memory = fmt.Sprintf("%dMiB", memory>>20)
		o.Args = []string{"--cluster-move-rate", fmt.Sprintf("%dMiB", moveRate>>20), "--pprof"}
	})
	w.Nodes = append(w.Nodes, w.NewServer("n4", w.net.Host("spare")))
	must(t, w.Start(within(t)))
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "--groups", "1", "n1", "n2", "n3", "n4:0")
	conn := w.dial("east")
	v := newMoved(int(*moveBytes / movedValue))
	began := time.Now()
	must(t, v.put(t.Context(), conn))
	t.Logf("%d values of %d bytes were put in %v", v.keys, movedValue, time.Since(began).Round(time.Millisecond))
	w.allTakePart(t)

	ctx, stop := context.WithCancel(t.Context())
	gets := v.get(ctx, conn, 16)
	before := gets.during(func() { pause(t.Context(), 10*time.Second) })
	began = time.Now()
	var took time.Duration
	during := gets.during(func() {
		w.changes(t, "replace", "n3", "n4")
		took = time.Since(began)
	})
	after := gets.during(func() { pause(t.Context(), 5*time.Second) })
	stop()
	must(t, gets.wait())

	c := conn.Counters()
	least := time.Duration(float64(*moveBytes) / moveRate * float64(time.Second))
	t.Logf("the move of %d MiB took %v, %.2f times the %v of %d MiB a second", *moveBytes>>20, took.Round(time.Millisecond), took.Seconds()/least.Seconds(), least.Round(time.Millisecond), moveRate>>20)
	ts := w.tasks(t)
	for _, m := range ts.last().Moves {
		t.Logf("of it the move of group %d from %s to %s took %v", m.Group, m.From, m.To, time.Duration(m.Ended-m.Began)*time.Millisecond)
	}
	t.Logf("gets before: %v", before)
	t.Logf("gets during: %v", during)
	t.Logf("gets after:  %v", after)
	t.Logf("p99 during the move is %.2f times that before, p50 %.2f times; %d gets were READs, %d SENDs", ratio(during.at(99), before.at(99)), ratio(during.at(50), before.at(50)), c.OneSidedHits, c.SendGets)
	for _, part := range []*times{before, during, after} {
		if len(part.all) == 0 {
			t.Error("no get has ended in one of the three parts")
		}
	}
	for _, g := range w.groups(w.Nodes[0]) {
		for _, p := range g.Replicas {
			if p.Node == "n3" || len(g.Replicas) != 3 {
				t.Errorf("behind the move group %d is %+v", g.ID, g)
			}
		}
	}
	must(t, v.check(t.Context(), conn))
	w.alikeFrom(t, w.net.Host("east"), 1)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// movedValue is the bytes of a value of TestMoveCost.
const movedValue = 4 << 10

// moved are the keys of TestMoveCost. Each has a value that no compression makes smaller, and no other key has.
type moved struct {
	keys  int
	noise []byte
}

func newMoved(keys int) *moved {
	v := &moved{keys: keys, noise: make([]byte, 8<<20+movedValue)}
	seed := [32]byte{}
	binary.LittleEndian.PutUint64(seed[:], *seedFlag)
	_, _ = rand.NewChaCha8(seed).Read(v.noise) // never fails
	return v
}

// value appends the value of a key to an empty slice.
func (v *moved) value(i int, b []byte) []byte {
	at := i * (movedValue + 11) % (8 << 20)
	b = binary.LittleEndian.AppendUint64(b[:0], uint64(i))
	return append(b, v.noise[at:at+movedValue-8]...)
}

// movedTogether keys are put by one batch, so their names have the same part in braces, which decides the shard.
const movedTogether = 16

func (v *moved) key(i int) []byte {
	return fmt.Appendf(nil, "moved {%06d} %02d", i/movedTogether, i%movedTogether)
}

// each calls f for every batch of keys, the first of which is i, on 32 goroutines, and returns the first errors.
func (v *moved) each(f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, 32)
	for n := range errs {
		wg.Go(func() {
			for errs[n] == nil {
				i := int(next.Add(movedTogether) - movedTogether)
				if i >= v.keys {
					return
				}
				errs[n] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// put puts all keys.
func (v *moved) put(ctx context.Context, c *Conn) error {
	return v.each(func(first int) error {
		var b client.Batch
		for i := first; i < min(first+movedTogether, v.keys); i++ {
			b.Put(v.key(i), v.value(i, nil))
		}
		each, cancel := context.WithTimeout(ctx, PatientLimit)
		defer cancel()
		_, err := c.WriteBatch(each, &b)
		return err
	})
}

// check gets all keys.
func (v *moved) check(ctx context.Context, c *Conn) error {
	return v.each(func(first int) (err error) {
		for i := first; err == nil && i < min(first+movedTogether, v.keys); i++ {
			each, cancel := context.WithTimeout(ctx, PatientLimit)
			err = v.same(each, c, i, v.value(i, nil))
			cancel()
		}
		return err
	})
}

// same gets a key and compares its value.
func (v *moved) same(ctx context.Context, c *Conn, i int, want []byte) error {
	got, err := c.Get(ctx, v.key(i))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes are read that were not put, %x…", len(got), got[:min(len(got), 16)])
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", v.key(i), err)
	}
	return nil
}

// A getting is callers that get keys, and how long each get took.
type getting struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	now  *times // of the part that is measured
	errs []error
}

// get starts callers, which go on until ctx ends or a get is wrong.
func (v *moved) get(ctx context.Context, c *Conn, callers int) *getting {
	g := &getting{now: &times{}}
	for n := range callers {
		g.wg.Go(func() {
			rng, value := rand.New(rand.NewPCG(*seedFlag, uint64(n))), []byte(nil)
			for ctx.Err() == nil {
				i := rng.IntN(v.keys)
				value = v.value(i, value)
				each, cancel := context.WithTimeout(context.WithoutCancel(ctx), PatientLimit)
				began := time.Now()
				err := v.same(each, c, i, value)
				took := time.Since(began)
				cancel()
				g.mu.Lock()
				g.now.all = append(g.now.all, took)
				if err != nil {
					g.errs = append(g.errs, err)
				}
				g.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return g
}

// during returns how long those gets took that ended while f ran.
func (g *getting) during(f func()) *times {
	part := &times{}
	began := time.Now()
	g.mu.Lock()
	g.now = part
	g.mu.Unlock()
	f()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = &times{}
	part.span = time.Since(began)
	slices.Sort(part.all)
	return part
}

// wait waits until all callers have ended, and returns what went wrong.
func (g *getting) wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}

// times are how long calls took, sorted.
type times struct {
	all  []time.Duration
	span time.Duration
}

// at is a percentile.
func (l *times) at(p int) time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	return l.all[min(len(l.all)*p/100, len(l.all)-1)]
}

// String implements fmt.Stringer.
func (l *times) String() string {
	us := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
	return fmt.Sprintf("%d in %v, %.0f/s, p50 %v, p99 %v, slowest %v", len(l.all), l.span.Round(time.Millisecond), float64(len(l.all))/max(l.span.Seconds(), 1e-3), us(l.at(50)), us(l.at(99)), us(l.at(100)))
}
