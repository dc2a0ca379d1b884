package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/internal/load"
)

// A memory is a store of the test: a map, which all callers share.
type memory struct {
	mu    sync.Mutex
	data  map[string][]byte
	gets  int
	ended bool
}

func (m *memory) opener(_ context.Context, t *Target, _ int) (Stores, func() error, error) {
	if t.System != "memory" {
		return nil, nil, errors.New("another system")
	}
	return func(context.Context, int) (load.Store, error) { return m, nil }, func() error { m.ended = true; return nil }, nil
}

func (m *memory) Get(_ context.Context, key, dst []byte) ([]byte, load.Path, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	v, ok := m.data[string(key)]
	if !ok {
		return nil, load.PathNone, load.ErrNotFound
	}
	return append(dst[:0], v...), load.PathRead1, nil
}

func (m *memory) Put(_ context.Context, key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[string(key)] = append([]byte(nil), value...)
	return nil
}

func (m *memory) GetMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for i := range keys {
		values[i], _, errs[i] = m.Get(ctx, keys[i], values[i])
	}
}

func (m *memory) PutMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for i := range keys {
		errs[i] = m.Put(ctx, keys[i], values[i])
	}
}

func (m *memory) Delete(context.Context, []byte) error           { return load.ErrUnsupported }
func (m *memory) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }
func (m *memory) Close() error                                   { return nil }

// TestWork: a worker fills, touches and measures what its job says, and ends what it has opened.
func TestWork(t *testing.T) {
	m := &memory{data: map[string][]byte{}}
	do := func(j any) (s report.Sample, err error) {
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err = Work(t.Context(), bytes.NewReader(text), &out, m.opener); err == nil {
			err = json.Unmarshal(out.Bytes(), &s)
		}
		return s, err
	}
	type job struct {
		Load, Fill *Load
		Dir        string // a field of other jobs
	}
	l := Load{Target: Target{System: "memory", PIDs: []int{os.Getpid()}}, Records: 500, Value: 100, Op: "get", Choice: "uniform", Callers: 2, Warm: time.Millisecond, Duration: 20 * time.Millisecond, Seed: 1}
	if _, err := do(job{Load: &l}); err == nil {
		t.Error("gets of keys that are not there are a result")
	}
	if s, err := do(job{Fill: &l}); err != nil || s.Ops != 500 || len(m.data) != 500 {
		t.Errorf("%+v, %v, %d keys", s, err, len(m.data))
	}
	if m.data["key:000000000499"] == nil {
		t.Errorf("the keys are others than those of redis-benchmark")
	}
	m.gets, m.ended = 0, false
	l.Touch = true
	s, err := do(job{Load: &l})
	if err != nil || s.Ops == 0 || s.P50 <= 0 || s.P99 < s.P50 || s.Rate <= 0 || !m.ended || uint64(m.gets) < s.Ops+2*500 {
		t.Errorf("%+v, %v, %d gets, ended %t", s, err, m.gets, m.ended)
	}
	for what, text := range map[string]string{"nothing": "{}", "no job": "x", "another system": `{"Load":{"Target":{"System":"other"}}}`} {
		var out bytes.Buffer
		if err := Work(t.Context(), strings.NewReader(text), &out, m.opener); err == nil || out.Len() != 0 {
			t.Errorf("%s: %v, %q", what, err, &out)
		}
	}
	for what, change := range map[string]func(*Load){"choice": func(l *Load) { l.Choice = "?" }, "operation": func(l *Load) { l.Op = "?" }} {
		bad := l
		change(&bad)
		if _, err := do(job{Load: &bad}); err == nil {
			t.Errorf("an unknown %s was taken", what)
		}
	}
}

// TestSpent: processor time is that of all nodes together; where one leads, its own is told, and
// the mean of the others.
func TestSpent(t *testing.T) {
	ms := func(n ...int) (out []time.Duration) {
		for _, v := range n {
			out = append(out, time.Duration(v)*time.Millisecond)
		}
		return out
	}
	for name, c := range map[string]struct {
		target        Target
		before, after []time.Duration
		share         float64
		want          report.Sample
	}{
		"none":              {Target{}, nil, nil, 1, report.Sample{Ops: 1000}},
		"a server":          {Target{PIDs: []int{7}}, ms(10), ms(30), 1, report.Sample{Ops: 1000, ServerCPU: 20}},
		"one that leads":    {Target{PIDs: []int{7}, Leader: 7}, ms(10), ms(30), 1, report.Sample{Ops: 1000, ServerCPU: 20, LeaderCPU: 20}},
		"nobody told apart": {Target{PIDs: []int{7, 8, 9}}, ms(0, 0, 0), ms(10, 20, 30), 1, report.Sample{Ops: 1000, ServerCPU: 60}},
		"the second leads":  {Target{PIDs: []int{7, 8, 9}, Leader: 8}, ms(5, 5, 5), ms(15, 45, 35), 1, report.Sample{Ops: 1000, ServerCPU: 80, LeaderCPU: 40, FollowerCPU: 20}},
		"half of it":        {Target{PIDs: []int{7, 8}, Leader: 7}, ms(0, 0), ms(40, 20), 0.5, report.Sample{Ops: 1000, ServerCPU: 30, LeaderCPU: 20, FollowerCPU: 10}},
	} {
		got := report.Sample{Ops: 1000}
		if c.target.Spent(&got, c.before, c.after, c.share); got.ServerCPU != c.want.ServerCPU || got.LeaderCPU != c.want.LeaderCPU || got.FollowerCPU != c.want.FollowerCPU {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	gone := Target{PIDs: []int{os.Getpid(), 1 << 30}}
	if used, err := gone.CPU(); err == nil {
		t.Errorf("a process that is not there has used %v", used)
	}
}
