package perflab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// countedSizes are those of the values whose gets are counted.
var countedSizes = []int{64, 1 << 10, 4 << 10}

// TestLabCount is the part of "make lab-bench" that counts: it runs in a guest of
// "lab run -count", whose clock advances by 1 ns with each instruction, so the
// times that everything here measures are instructions: of both programs, of
// libraries, and of the kernel. It writes a report.Result that has that part alone.
//
// The guest has one processor, which both ends share: the kernel does the peer's
// half of a READ on it before the READ completes, for perftest as for us.
func TestLabCount(t *testing.T) {
	if os.Getenv("RDMAKV_LAB_COUNT") == "" {
		t.Skip("needs a guest of the lab whose clock counts instructions: COUNT=only make lab-bench")
	}
	begun := time.Now()
	if err := counts(); err != nil {
		t.Fatal(err)
	}
	b := &bench{env: newEnv(t), modes: make(map[wait.Mode]*client.Client)}
	for _, mode := range []wait.Mode{wait.Poll, wait.Event} {
		b.modes[mode] = b.dialMode(mode)
	}
	for _, size := range countedSizes {
		for i := range keys {
			if err := b.cached.Put(b.ctx, sizedKey(size, i), make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rows := chosen(b.countedRows())
	seed := uint64(*seedFlag)
	for round := 1; round <= *roundsFlag; round++ {
		for i := range rows {
			rows[i].round(round, rand.New(rand.NewPCG(seed, uint64(round*100+i))))
		}
	}
	part := report.Counted{Started: begun.UTC(), Rounds: *roundsFlag, Calls: *nFlag, Seed: seed, Versions: b.programs(),
		Quick: *roundsFlag < 5 || *nFlag < countedCalls || *rowsFlag != ""}
	for i := range rows {
		if err := rows[i].Check(); err != nil {
			t.Fatal(err)
		}
		rows[i].Judge()
		part.Rows = append(part.Rows, rows[i].Row)
		for _, c := range rows[i].Contenders {
			for _, r := range c.Rounds {
				if r.Error != "" {
					t.Errorf("%s, %s, round %d: %s", rows[i].Name, c.Name, r.Round, r.Error)
				}
			}
		}
	}
	t.Logf("seed %d, %d rounds, %d calls of each; instructions:\n%s", seed, *roundsFlag, *nFlag, summary(part.Rows))
	if *outFlag == "" {
		return
	}
	f, err := os.Create(*outFlag)
	if err == nil {
		res := report.Result{Schema: report.Schema, Counted: &part}
		err = errors.Join(res.WriteJSON(f), f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// A run of fewer calls is shortened: garbage collection would be in few of the batches.
const countedCalls = 500

// counts says whether this guest's clock counts instructions: a loop then takes the
// same time to the nanosecond again and again, but for the runs that an interrupt fell
// into, and each turn of it a whole number of nanoseconds. In a guest whose clock tells
// time a quarter of the runs at most were the same, and a turn took 1.9 or 5.4 ns.
func counts() error {
	const n, runs = 20000, 40
	took, times := make([]int, runs), make(map[int]int)
	usual := 0 // the time that is taken most often
	for i := range took {
		begin := time.Now()
		for j := range n {
			spun += j
		}
		took[i] = int(time.Since(begin))
		if times[took[i]]++; times[took[i]] > times[usual] {
			usual = took[i]
		}
	}
	// A look at the clock takes some hundred instructions.
	if rest := usual % n; times[usual] < runs/3 || rest > n/50 {
		return fmt.Errorf("this guest's clock does not count instructions (%d turns of a loop took %v ns): boot it with lab run -count", n, took)
	}
	return nil
}

// spun keeps the loop of counts from being left out.
var spun int

// countedRows are all questions that are asked of a counted guest.
func (b *bench) countedRows() []question {
	var rows []question
	for _, size := range countedSizes {
		rows = append(rows, b.countedGet(size))
	}
	return append(rows, b.countedBatch(), b.countedPut())
}

func (b *bench) countedGet(size int) question {
	q := question{Row: report.Row{
		Name: "count-get-" + strconv.Itoa(size), Title: "get of " + label(size),
		Text:   fmt.Sprintf("a READ of %d bytes each", itemBytes(size)),
		Figure: report.Instructions,
	}}
	ours := get(wait.Poll)
	q.add(report.Contender{Name: readLat, Kind: report.Floor, System: "perftest", Waiting: "spins", How: fmt.Sprintf("ib_read_lat -s %d", itemBytes(size))},
		func() (report.Sample, error) {
			row, err := b.theirs.table(b.ctx, "ib_read_lat", "-s", strconv.Itoa(itemBytes(size)), "-n", strconv.Itoa(*nFlag))
			return report.Sample{Ops: uint64(*nFlag), P50: row["t_typical[usec]"]}, err
		})
	q.add(report.Contender{Name: ours, Kind: report.Ours, System: "rdmakv verbs", Waiting: "spins", How: "client.GetInto, places known"},
		func() (report.Sample, error) { return b.sizedGets(b.modes[wait.Poll], size, 1) })
	q.Targets = []report.Target{{Text: "get of " + label(size) + ", of ib_read_lat", Ours: ours, Theirs: []string{readLat}, Want: report.AtMost, Limit: 1.15}}
	return q.counting()
}

func (b *bench) countedBatch() question {
	const size, n = 64, 64
	count := (max(*nFlag*10, n) + n - 1) / n * n
	q := question{Row: report.Row{
		Name: "count-batch-64", Title: "gets of 64 B, 64 in a batch",
		Text:   fmt.Sprintf("READs of %d bytes, 64 at a doorbell", itemBytes(size)),
		Figure: report.Figure{Name: "rate", Unit: "per 10⁹ instructions", More: true},
	}}
	bw, ours := "ib_read_bw, 64 at a doorbell", "rdmakv MultiGet of 64"
	q.add(report.Contender{Name: bw, Kind: report.Floor, System: "perftest", Waiting: "spins", How: "ib_read_bw -t 64 -l 64 -Q 1"},
		func() (report.Sample, error) {
			row, err := b.theirs.table(b.ctx, "ib_read_bw", "-s", strconv.Itoa(itemBytes(size)), "-n", strconv.Itoa(count), "-t", "64", "-l", "64", "-Q", "1")
			return report.Sample{Ops: uint64(count), Rate: row["MsgRate[Mpps]"] * 1e6}, err
		})
	q.add(report.Contender{Name: ours, Kind: report.Ours, System: "rdmakv verbs", Waiting: "spins", How: "client.MultiGet into the results of before, places known"},
		func() (report.Sample, error) { return b.multiGets(b.modes[wait.Poll], size, n, count) })
	q.Targets = []report.Target{{Text: "batches of 64, of ib_read_bw", Ours: ours, Theirs: []string{bw}, Want: report.AtLeast, Limit: 1}}
	return q.counting()
}

// countedPut: this end sleeps while the server works, so nobody's waiting is
// counted.
func (b *bench) countedPut() question {
	const size = 64
	q := question{Row: report.Row{
		Name: "count-put-64", Title: "put of 64 B, sync off",
		Text:   "of both ends: a SEND, a commit into the log, a SEND",
		Figure: report.Instructions,
	}}
	list, value := sizedKeys(size), make([]byte, size)
	q.add(report.Contender{Name: "rdmakv put", Kind: report.Ours, System: "rdmakv verbs", Waiting: "sleeps", How: "client.Put"},
		func() (report.Sample, error) {
			return latencies(b.ctx, *nFlag, func(i int) error {
				value[0]++
				return b.modes[wait.Event].Put(b.ctx, list[i%keys], value)
			})
		})
	return q.counting()
}

// counting makes every turn's time one of instructions.
func (q question) counting() question {
	for i, timed := range q.turns {
		q.turns[i] = func() (report.Sample, error) {
			s, err := timed()
			return s.Counting(), err
		}
	}
	return q
}
