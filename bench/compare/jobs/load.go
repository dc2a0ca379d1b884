package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/internal/load"
)

// Run measures the load.
func (l *Load) Run(ctx context.Context, opener Opener) (s report.Sample, err error) {
	open, end, err := opener(ctx, &l.Target, l.Value)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	o, err := l.Options(open)
	if err != nil {
		return s, err
	}
	if l.Touch {
		if err := Touch(ctx, o); err != nil {
			return s, err
		}
	}
	var before time.Duration
	var beforeServers []time.Duration
	var cpuErr error
	o.Measuring = func() {
		before = used()
		beforeServers, cpuErr = l.Target.CPU()
	}
	res, err := load.Run(ctx, o)
	if err != nil {
		return s, err
	}
	own := used() - before
	afterServers, err := l.Target.CPU()
	if err = errors.Join(err, cpuErr); err != nil {
		return s, err
	}
	if err := faults(ctx, res, l); err != nil {
		return s, err
	}
	s = report.Sample{
		Ops: uint64(res.Ops), Seconds: res.Seconds, Rate: res.OpsPerSecond,
		P50: res.P50, P90: res.P90, P99: res.P99, P999: res.P999, Max: res.Max,
		ClientCPU: micros(own) / float64(res.Ops),
	}
	l.Target.Spent(&s, beforeServers, afterServers, 1)
	for path, p := range res.Operations[l.Op].Paths {
		if path != "" && l.Target.System == "rdmakv" {
			if s.Paths == nil {
				s.Paths = make(map[string]float64)
			}
			s.Paths[path] = p.Share
		}
	}
	return s, nil
}

// faults refuses results in which calls failed or did not find their key:
// figures of such a run would say nothing.
func faults(ctx context.Context, res *load.Result, l *Load) error {
	if res.Interrupted {
		return context.Cause(ctx)
	}
	if res.Errors > 0 {
		first := "unknown"
		if len(res.ErrorKinds) > 0 && len(res.ErrorKinds[0].Examples) > 0 {
			first = res.ErrorKinds[0].Examples[0]
		}
		return fmt.Errorf("%d of %d calls failed: %s", res.Errors, res.Errors+res.Ops, first)
	}
	if res.Ops == 0 {
		return errors.New("no call was answered in the time")
	}
	if n := res.Operations[l.Op].NotFound; n > 0 {
		return fmt.Errorf("%d of %d gets found no key: it was evicted, or never stored", n, res.Ops)
	}
	return nil
}

// Fill stores the records.
func (l *Load) Fill(ctx context.Context, opener Opener) (s report.Sample, err error) {
	l.Target.Registered = false
	open, end, err := opener(ctx, &l.Target, l.Value)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	l.Op, l.Choice, l.Callers, l.Duration = "put", "uniform", 1, time.Second
	o, err := l.Options(open)
	if err != nil {
		return s, err
	}
	o.FillWorkers, o.FillBatch = 8, 64
	if l.Value > 64<<10 {
		o.FillBatch = 1
	}
	f, err := load.Fill(ctx, o)
	if err != nil {
		return s, err
	}
	return report.Sample{Ops: uint64(f.Keys), Seconds: f.Seconds, Rate: f.KeysPerSecond}, nil
}
