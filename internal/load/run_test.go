package load

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func mustRun(t *testing.T, o Options) *Result {
	t.Helper()
	if _, err := Fill(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestWorkloads runs every workload: all operations of its mix are there, in
// about their shares, none fails, and the numbers add up.
func TestWorkloads(t *testing.T) {
	for _, w := range Workloads() {
		t.Run(w.Name, func(t *testing.T) {
			m := newMemStore()
			o := testOptions(m)
			o.Mix, o.Choice = w.Mix, w.Choice
			res := mustRun(t, o)
			if res.Ops != 2000 || res.Errors != 0 || res.Interrupted || len(res.ErrorKinds) != 0 {
				t.Fatalf("%d operations, %d errors %v", res.Ops, res.Errors, res.ErrorKinds)
			}
			total, series := 0.0, int64(0)
			for _, share := range w.Mix {
				total += share
			}
			for op, share := range w.Mix {
				got, there := res.Operations[Op(op).String()]
				if there != (share > 0) {
					t.Fatalf("%v is there: %v", Op(op), there)
				}
				if want := share / total; float64(got.Ops)/2000 < want-0.08 || float64(got.Ops)/2000 > want+0.08 {
					t.Errorf("%d of 2000 are %v, want a share of %v", got.Ops, Op(op), want)
				}
				if there && !(got.Min > 0 && got.Min <= got.P50 && got.P50 <= got.P90 && got.P90 <= got.P99 && got.P99 <= got.P999 && got.P999 <= got.Max) {
					t.Errorf("%v: %+v", Op(op), got.Latency)
				}
			}
			for _, p := range res.Series {
				series += p.Ops
			}
			if series != 2000 {
				t.Errorf("the series has %d operations", series)
			}
			if get, ok := res.Operations["get"]; ok && (get.Paths["read_1"].Ops != get.Ops || get.Paths["read_1"].Share != 1) {
				t.Errorf("paths %+v", get.Paths)
			}
			if w.Mix[OpInsert] > 0 && len(m.values) != 500+int(res.Operations["insert"].Ops) {
				t.Errorf("%d keys and %d inserts", len(m.values), res.Operations["insert"].Ops)
			}
			if m.opened.Load() != m.closed.Load() || m.most.Load() > 3 {
				t.Errorf("%d opened, %d closed, %d at a time", m.opened.Load(), m.closed.Load(), m.most.Load())
			}
		})
	}
}

// TestSameSeed: the same options make the same operations on the same keys.
func TestSameSeed(t *testing.T) {
	trace := func(seed uint64) string {
		var b strings.Builder
		m := newMemStore()
		o := testOptions(m)
		o.Workers, o.Operations, o.Mix, o.Choice, o.Seed = 1, 300, Mix{OpGet: 1, OpPut: 1, OpInsert: 1, OpDelete: 1, OpScan: 1}, Zipfian, seed
		if _, err := Fill(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		m.before = func(op Op, key []byte) error {
			b.WriteString(op.String() + string(key) + "\n")
			return nil
		}
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if one := trace(1); one != trace(1) || one == trace(2) {
		t.Error("the seed does not decide")
	}
}

// TestErrors: what fails is counted by kind with examples, and its time is kept
// apart.
func TestErrors(t *testing.T) {
	m := newMemStore()
	o := testOptions(m)
	o.Mix = Mix{OpGet: 1, OpPut: 1}
	if _, err := Fill(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	m.before = func(op Op, key []byte) error {
		switch i := n.Add(1); {
		case i%10 == 0:
			return errors.New("broken " + strings.Repeat("x", 1000))
		case op == OpGet && i%11 == 0:
			return ErrNotFound
		}
		return nil
	}
	m.values["t/0000000003"][20]++
	res, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int64{}
	sum := int64(0)
	for _, k := range res.ErrorKinds {
		kinds[k.Kind] = k.Count
		sum += k.Count
		if len(k.Examples) == 0 || len(k.Examples) > maxExamples || len(k.Examples[0]) > maxExample+10 {
			t.Errorf("%s: %d examples", k.Kind, len(k.Examples))
		}
	}
	if res.Errors != sum || res.Ops+res.Errors != 2000 || kinds["other"] != 200 || kinds["not found"] == 0 {
		t.Errorf("%d operations, %d errors: %v", res.Ops, res.Errors, kinds)
	}
	if get := res.Operations["get"]; get.Paths["failed"].Ops != get.Errors || get.Errors == 0 {
		t.Errorf("%d errors, path %+v", get.Errors, get.Paths["failed"])
	}
}

// TestWrongValue: every kind of damage is seen.
func TestWrongValue(t *testing.T) {
	for name, damage := range map[string]func(m *memStore){
		"other key":  func(m *memStore) { m.values["t/0000000001"] = m.values["t/0000000002"] },
		"one bit":    func(m *memStore) { m.values["t/0000000001"][63] ^= 1 },
		"cut":        func(m *memStore) { m.values["t/0000000001"] = m.values["t/0000000001"][:60] },
		"other body": func(m *memStore) { m.values["t/0000000001"][8]++ },
		"gone":       func(m *memStore) { delete(m.values, "t/0000000001") },
	} {
		m := newMemStore()
		o := testOptions(m)
		o.Records, o.Operations = 2, 200
		o.Records = 3
		if _, err := Fill(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		damage(m)
		res, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		want := "wrong value"
		if name == "gone" {
			want = "not found"
		}
		if res.Errors == 0 || res.ErrorKinds[0].Kind != want || !strings.Contains(strings.Join(res.ErrorKinds[0].Examples, ""), map[bool]string{true: "key 1", false: ""}[name != "gone"]) {
			t.Errorf("%s: %d errors, %v", name, res.Errors, res.ErrorKinds)
		}
	}
}

// TestBatches: calls for many keys, the last one of the operations shorter.
func TestBatches(t *testing.T) {
	for _, mix := range []Mix{{OpGet: 1}, {OpPut: 1}, {OpInsert: 1}, {OpGet: 1, OpPut: 1, OpInsert: 1}} {
		m := newMemStore()
		o := testOptions(m)
		o.Batch, o.Operations, o.FillBatch, o.Mix = 16, 1000, 7, mix
		res := mustRun(t, o)
		if res.Ops != 1000 || res.Errors != 0 {
			t.Errorf("%v: %d operations, %d errors %v", mix, res.Ops, res.Errors, res.ErrorKinds)
		}
		for op, r := range res.Operations {
			if r.Paths["batch"].Ops != r.Ops {
				t.Errorf("%s: paths %+v", op, r.Paths)
			}
		}
	}
}

// TestFailedInserts: an insert that fails is made again, and its key is not read
// before that.
func TestFailedInserts(t *testing.T) {
	for _, batch := range []int{1, 8} {
		m := newMemStore()
		o := testOptions(m)
		o.Mix, o.Choice, o.Batch = Mix{OpGet: 1, OpInsert: 1}, Latest, batch
		if _, err := Fill(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		m.before = func(op Op, key []byte) error {
			if op == OpPut && n.Add(1)%3 == 0 {
				return errors.New("not now")
			}
			return nil
		}
		res, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if get := res.Operations["get"]; get.Errors != 0 || get.Ops == 0 {
			t.Errorf("batch %d: %d gets, %d failed: %v", batch, get.Ops, get.Errors, res.ErrorKinds)
		}
		if ins := res.Operations["insert"]; ins.Errors == 0 || len(m.values) != 500+int(ins.Ops) {
			t.Errorf("batch %d: %d inserts, %d failed, %d keys", batch, ins.Ops, ins.Errors, len(m.values))
		}
	}
}

// TestDeletes: where keys are deleted, one that is not there is an answer.
func TestDeletes(t *testing.T) {
	m := newMemStore()
	o := testOptions(m)
	o.Mix = Mix{OpGet: 1, OpDelete: 1, OpRMW: 1}
	res := mustRun(t, o)
	if res.Errors != 0 || res.Operations["get"].NotFound == 0 || res.Operations["get"].NotFound >= res.Operations["get"].Ops {
		t.Errorf("%d errors, %+v", res.Errors, res.Operations["get"])
	}
}

// TestInterrupt: the end of the context ends a run at once, with what was done.
func TestInterrupt(t *testing.T) {
	for _, rate := range []float64{0, 2000} {
		m := newMemStore()
		o := testOptions(m)
		o.Operations, o.Duration, o.Rate = 0, time.Hour, rate
		if _, err := Fill(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		m.before = func(Op, []byte) error {
			if n.Add(1) == 100 {
				cancel()
			}
			return nil
		}
		res, err := Run(ctx, o)
		cancel()
		if err != nil || !res.Interrupted || res.Ops < 98 || res.Errors != 0 || m.opened.Load() != m.closed.Load() {
			t.Errorf("rate %v: %+v, %v", rate, res, err)
		}
	}
}

// TestWarmup: what happens while it warms up is not counted.
func TestWarmup(t *testing.T) {
	m := newMemStore()
	o := testOptions(m)
	o.Warmup = 30 * time.Millisecond
	var calls, before atomic.Int64
	m.before = func(op Op, _ []byte) error {
		if op == OpGet {
			calls.Add(1)
		}
		return nil
	}
	o.Measuring = func() { before.Store(calls.Load()) }
	res := mustRun(t, o)
	if before.Load() == 0 || calls.Load()-before.Load() != 2000 || res.Ops != 2000 {
		t.Errorf("%d calls, %d before the measurement, %d measured", calls.Load(), before.Load(), res.Ops)
	}
}

// TestOpenFails: stores that were opened are closed.
func TestOpenFails(t *testing.T) {
	m := newMemStore()
	o := testOptions(m)
	o.Open = func(ctx context.Context, worker int) (Store, error) {
		if worker == 1 {
			return nil, errors.New("no")
		}
		return m.open(ctx, worker)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "caller 1") || m.closed.Load() != 1 {
		t.Errorf("%v, %d closed", err, m.closed.Load())
	}
	if _, err := Fill(t.Context(), o); err == nil || m.closed.Load() != 2 {
		t.Errorf("%v, %d closed", err, m.closed.Load())
	}
}
