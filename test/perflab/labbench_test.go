package perflab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A turn measures one contender once.
type turn func() (report.Sample, error)

// A question is a row and how each of its contenders is measured, in the same
// order.
type question struct {
	report.Row
	turns []turn
}

func (q *question) add(c report.Contender, t turn) {
	q.Contenders = append(q.Contenders, c)
	q.turns = append(q.turns, t)
}

// sizes are those of the values.
var sizes = []int{64, 4 << 10, 64 << 10}

// A bench is what TestLabBench's rows share.
type bench struct {
	*env
	modes map[wait.Mode]*client.Client // with a location cache
	redis *redis
	pong  string // address of an echo in another process
}

// TestLabBench is what "make lab-bench" runs in the guest: the store beside
// perftest, beside Redis, and beside what both stand on, in rounds, the
// contenders of each round in an order of its own. It writes a report.Result.
func TestLabBench(t *testing.T) {
	if os.Getenv("RDMAKV_LAB") == "" || *redisFlag == "" {
		t.Skip("needs a guest of the lab, and Redis in a directory: make lab-bench")
	}
	begun := time.Now()
	b := newBench(t)
	rows := chosen(b.questions())
	seed := uint64(*seedFlag)
	t.Logf("seed %d", seed)
	for i := range rows {
		if err := rows[i].Check(); err != nil {
			t.Fatal(err)
		}
	}
	for round := 1; round <= *roundsFlag; round++ {
		for i := range rows {
			rows[i].round(round, rand.New(rand.NewPCG(seed, uint64(round*100+i))))
		}
		t.Logf("round %d of %d is over after %.0f s", round, *roundsFlag, time.Since(begun).Seconds())
	}
	res := report.Result{Schema: report.Schema, Started: begun.UTC(), Rounds: *roundsFlag, Quick: *roundsFlag < 5 || *rowsFlag != "",
		Seed: seed, Machine: report.ThisMachine(t.TempDir()), Versions: b.versions()}
	for i := range rows {
		rows[i].Judge()
		res.Rows = append(res.Rows, rows[i].Row)
		for _, c := range rows[i].Contenders {
			for _, r := range c.Rounds {
				if r.Error != "" {
					t.Errorf("%s, %s, round %d: %s", rows[i].Name, c.Name, r.Round, r.Error)
				}
			}
		}
	}
	res.Seconds = time.Since(begun).Seconds()
	t.Logf("\n%s", summary(res.Rows))
	if *outFlag == "" {
		return
	}
	f, err := os.Create(*outFlag)
	if err == nil {
		err = errors.Join(res.WriteJSON(f), f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// chosen are the rows that -rows asks for, all if it does not.
func chosen(rows []question) []question {
	if *rowsFlag == "" {
		return rows
	}
	want := strings.Split(*rowsFlag, ",")
	return slices.DeleteFunc(rows, func(q question) bool { return !slices.Contains(want, q.Name) })
}

// round gives every contender its turn, in an order of chance.
func (q *question) round(round int, order *rand.Rand) {
	for nth, i := range order.Perm(len(q.turns)) {
		s, err := q.turns[i]()
		r := report.Round{Round: round, Order: nth + 1, Sample: s}
		if err != nil {
			r.Sample, r.Error = report.Sample{}, err.Error()
		}
		q.Contenders[i].Rounds = append(q.Contenders[i].Rounds, r)
	}
}

// summary is the medians as text.
func summary(rows []report.Row) string {
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%s (%s):\n", row.Title, row.Figure.Unit)
		for _, c := range row.Contenders {
			if c.Summary != nil {
				fmt.Fprintf(&b, "    %-44s %9.3f  (%.3f to %.3f)\n", c.Name, c.Summary.Median, c.Summary.Min, c.Summary.Max)
			}
		}
		for _, g := range row.Targets {
			if g.Ratio != nil {
				fmt.Fprintf(&b, "  %s: %s / %s = %.2f, %s %.2f: %s\n", g.Text, g.Ours, g.Against, g.Ratio.Median, g.Want, g.Limit, g.Reached)
			}
		}
	}
	return b.String()
}

// newBench adds to newEnv clients in every mode of waiting, values of all sizes,
// Redis with the same, and the echo.
func newBench(t *testing.T) *bench {
	b := &bench{env: newEnv(t), modes: make(map[wait.Mode]*client.Client)}
	for _, mode := range []wait.Mode{wait.Poll, wait.Event, wait.Adaptive} {
		b.modes[mode] = b.dialMode(mode)
	}
	b.redis, b.pong = startRedis(t, b.ctx), startPong(t)
	conn := b.redis.dial(t, false)
	if err := conn.set([]byte("key:__rand_int__"), make([]byte, 64)); err != nil { // what redis-benchmark asks for
		t.Fatal(err)
	}
	for _, size := range sizes {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i*31 + size)
		}
		for i := range keys {
			if err := b.cached.Put(b.ctx, sizedKey(size, i), value); err != nil {
				t.Fatal(err)
			}
			if err := conn.set(sizedKey(size, i), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

func (b *bench) dialMode(mode wait.Mode) *client.Client {
	c, err := client.Dial(b.ctx, client.Config{Servers: []string{b.node.Data}, Fabrics: []rdma.Fabric{verbs.New(verbs.Options{})},
		Wait: mode, Timeout: time.Minute, DialTimeout: time.Minute, RequireRDMA: true})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return c
}

// sizedKey has 16 bytes; that is what redis-benchmark uses, too.
func sizedKey(size, i int) []byte { return fmt.Appendf(nil, "s%05d/%09d", size, i) }

// sizedKeys are the keys of all values of a size. They are made before anything is
// timed: to format one takes as long as a fifth of a get's own work.
func sizedKeys(size int) (list [keys][]byte) {
	for i := range list {
		list[i] = sizedKey(size, i)
	}
	return list
}

// itemBytes is what a one-READ get of a value of that size READs.
func itemBytes(size int) int {
	class, _ := layout.ClassFor(layout.ItemSize(len(sizedKey(size, 0)), size, false))
	return layout.ClassSize(class)
}

// latencies runs f n times after a warm-up, one call at a time.
func latencies(ctx context.Context, n int, f func(i int) error) (s report.Sample, err error) {
	for i := range min(n, 2*keys) {
		if err := f(i); err != nil {
			return s, err
		}
	}
	times := make([]float64, n)
	begun := time.Now()
	last := time.Since(begun) // one look at the clock, where time.Now takes two
	for i := range times {
		if err := f(i); err != nil {
			return s, err
		}
		now := time.Since(begun)
		times[i] = float64((now - last).Nanoseconds()) / 1e3
		last = now
	}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[min(n-1, int(q*float64(n)))] }
	s = report.Sample{Ops: uint64(n), Seconds: last.Seconds(), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: times[n-1]}
	s.Rate = float64(n) / s.Seconds
	return s, nil
}
