package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/test/linear"
)

// LoadOptions say what a load does. Stores is required.
type LoadOptions struct {
	Name    string // of the run, for the files of histories
	Seed    uint64
	Stores  []linear.Store
	Workers int    // default 8
	Readers int    // clients beside them that only read
	Prefix  string // of all keys; default "w"
	Dir     string // where histories go that do not fit
	Pace    time.Duration
	// Replicas: the keys are in groups of replicas, where the parts of a batch have other versions.
	Replicas bool
}

// A Load is clients at work on few keys, of which each has many writers and
// readers. What they saw is judged while they go on, and at the end.
type Load struct {
	w      *linear.Workload
	c      *linear.Checker
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	lapses []linear.Lapse
	short  int
}

// maxLapses bounds how many lapses are kept.
const maxLapses = 1000

// lapsed keeps a call that had no answer. Those that were given little time and ended with it are counted only: there may be any number of them, and they must
// not take the places of others.
func (l *Load) lapsed(one linear.Lapse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case one.Given <= PatientLimit/2 && !outlives(&one):
		l.short++
	case len(l.lapses) < maxLapses:
		l.lapses = append(l.lapses, one)
	}
}

// outlives says whether a call went on for long behind its deadline: for far more than a busy machine takes to wake a goroutine.
func outlives(l *linear.Lapse) bool { return l.Took > max(0, l.Given)+PatientLimit/2 }

// Lapses are the calls so far that had no answer in a long time, the first ones of them, or that have outlived their deadline, and how many others had none in the little
// time that they were given.
func (l *Load) Lapses() (list []linear.Lapse, short int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lapses), l.short
}

// Verdict is the result of a load.
type Verdict struct {
	linear.Summary
	Wrong []string // histories that are not linearizable, and those that could not be judged
}

// StartLoad starts workers, which stop at Finish.
func StartLoad(ctx context.Context, o LoadOptions) *Load {
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Prefix == "" {
		o.Prefix = "w"
	}
	l := &Load{done: make(chan error, 1)}
	l.c = &linear.Checker{
		Name: o.Name, Seed: o.Seed, Dir: o.Dir, Jobs: 1, Limit: 2 * time.Minute,
		// A restart puts the server's clock ahead of ours: a deadline may come at
		// any time.
		Slack: linear.Slack{Forget: true},
	}
	if o.Replicas {
		l.c.Slack.Step = linear.ReplicaStep
	}
	can := linear.ClientCan
	// A scan asks every node that owns keys, and one that is away fails it: the tests of such scans are
	// elsewhere. Where keys have replicas another node answers.
	can.Scan = o.Replicas
	l.w = linear.New(linear.Config{
		Seed: o.Seed, Stores: o.Stores, Can: can, Prefix: o.Prefix,
		Workers: o.Workers, Readers: o.Readers, Objects: 24, OpsPerObject: 500, Sizes: []int{9, 16, 40, 100, 300, 1000, 3000, 70_000},
		ShortEvery: 50, ShortUpTo: 50 * time.Millisecond,
		TTLFrom: 20 * time.Millisecond, TTLUpTo: 2 * time.Second,
		Pace: o.Pace, Done: l.c.Add, Lapsed: l.lapsed,
	})
	ctx, l.cancel = context.WithCancel(ctx)
	go func() { l.done <- l.w.Run(ctx) }()
	return l
}

// Ops is how many operations were recorded so far.
func (l *Load) Ops() int { return l.w.Ops() }

// Finish stops the workers, reads every key once more, without writers, and judges. The
// error is of something that must not happen at all. It is called once.
func (l *Load) Finish(ctx context.Context) (Verdict, error) {
	l.cancel()
	err := <-l.done
	if err == nil {
		err = l.w.Finish(ctx)
	}
	sum, failures := l.c.Close()
	return Verdict{sum, failures}, err
}

// String is a line about the verdict.
func (v Verdict) String() string {
	return fmt.Sprintf("ops=%d histories=%d keys=%d unknown=%d refused=%d wrong=%d undecided=%d longest=%v",
		v.Ops, v.Objects, v.Keys, v.Unknown, v.Refused, v.Failures-v.Undecided, v.Undecided, v.Longest.Round(time.Millisecond))
}
