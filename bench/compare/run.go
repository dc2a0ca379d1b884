package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// compare measures the rows and writes what came of it.
func compare(ctx context.Context, o options, rows []row, log io.Writer) error {
	begun := time.Now()
	res := &report.Result{
		Schema: report.Schema, Started: begun.UTC().Truncate(time.Second), Rounds: o.rounds, Slice: o.slice.Seconds(),
		Quick: o.quick, Seed: o.seed, Machine: report.ThisMachine(o.dir), Versions: versions(ctx, o),
	}
	fmt.Fprintf(log, "%d rows, %d rounds, %v a turn, seed %d, GOMAXPROCS of all programs as they come\n", len(rows), o.rounds, o.slice, o.seed)
	for i := range rows {
		r := &rows[i]
		if err := r.Check(); err != nil {
			return err
		}
		fmt.Fprintf(log, "\n[%d/%d, %v] %s: %s\n", i+1, len(rows), time.Since(begun).Truncate(time.Second), r.Name, r.Title)
		if err := r.run(ctx, o, log); err != nil {
			return err
		}
		res.Rows = append(res.Rows, r.Row)
	}
	res.Seconds = time.Since(begun).Seconds()
	return write(o, res, log)
}

// run measures a row, round by round. Failures are noted in the row; the error
// is only about ctx.
func (r *row) run(ctx context.Context, o options, log io.Writer) (err error) {
	if r.Error = r.short(memInfo()); r.Error != "" {
		fmt.Fprintln(log, " ", r.Error)
		r.Judge()
		return nil
	}
	rig, err := newRig(o)
	if err != nil {
		r.Error = err.Error()
		r.Judge()
		return nil
	}
	defer func() {
		if closeErr := rig.close(); closeErr != nil {
			r.Error = closeErr.Error()
			fmt.Fprintf(log, "  %v\n", closeErr)
		}
	}()
	rounds := o.rounds
	if r.once {
		rounds = 1
	}
	order := rand.New(rand.NewPCG(o.seed, nameSeed(r.Name)))
	for round := 1; round <= rounds; round++ {
		fmt.Fprintf(log, "  round %d/%d", round, rounds)
		for turn, which := range order.Perm(len(r.asked)) {
			got := r.turn(ctx, rig, which, report.Round{Round: round, Order: turn + 1})
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			r.Contenders[which].Rounds = append(r.Contenders[which].Rounds, got)
			if got.Error != "" {
				fmt.Fprintf(log, "\n    %s: %s\n   ", r.Contenders[which].Name, got.Error)
			} else {
				fmt.Fprint(log, ".")
			}
		}
		fmt.Fprintln(log)
	}
	r.Judge()
	report.Text(log, &r.Row)
	return nil
}

// turn lets one contender have its turn.
func (r *row) turn(ctx context.Context, rig *rig, which int, got report.Round) report.Round {
	ctx, cancel := context.WithTimeoutCause(ctx, turnLimit+fillLimit, errors.New("the turn was ended by force"))
	defer cancel()
	s, err := r.asked[which].measure(ctx, rig)
	if err == nil && !r.Figure.Valid(r.Figure.Of(s)) {
		err = fmt.Errorf("measured no %s", r.Figure.Name)
	}
	if err != nil {
		got.Error = cmp.Or(err.Error(), "failed")
		return got
	}
	got.Sample = s
	return got
}

func nameSeed(name string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return h.Sum64()
}
