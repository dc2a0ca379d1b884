package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/internal/load/rdmakv"
)

// A bench is one run.
type bench struct {
	*app
	flags   *benchFlags
	o       load.Options
	clients []*client.Client

	before client.Counters // when the measurement began
	cpu    time.Duration   // that this process had used by then
}

// noStore stands for a store while options are only checked.
func noStore(context.Context, int) (load.Store, error) {
	return nil, errors.New("no store")
}

// errBench ends bench with exitError where operations failed.
type errBench struct{ text string }

func (e errBench) Error() string { return e.text }

func (b *bench) run(ctx context.Context) error {
	if b.output == "png" && isTerminal(b.stdout) {
		return usagef("a PNG is nothing for a terminal: redirect the output, or use --report FILE.png")
	}
	for range b.flags.connections {
		c, err := b.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		b.clients = append(b.clients, c)
	}
	b.o.Open, b.o.Classify, b.o.Progress = rdmakv.Open(b.clients...), rdmakv.Classify, new(load.Progress)
	res := benchResult{Bench: b.setup()}
	if b.flags.skipLoad {
		if err := b.probe(ctx); err != nil {
			return err
		}
	} else {
		filled, err := b.fill(ctx)
		if err != nil {
			return err
		}
		res.Load = &filled
		if b.flags.loadOnly {
			return b.write(&res)
		}
	}
	b.o.Measuring = func() { b.before, b.cpu = b.counters(), processTime() }
	show := b.showRun()
	result, err := load.Run(ctx, b.o)
	show.finish()
	if err != nil {
		return err
	}
	after := b.counters()
	res.Result = result
	res.Client = clientSummary(b.before, after, processTime()-b.cpu)
	if err := b.write(&res); err != nil {
		return err
	}
	switch {
	case result.Errors+result.WarmupErrors > 0:
		return errBench{failureText(result)}
	case result.Interrupted:
		return errBench{"interrupted: the result is of what was done until then"}
	}
	return nil
}

// probe sees whether the keys are there.
func (b *bench) probe(ctx context.Context) error {
	err := load.Probe(ctx, b.o)
	switch {
	case errors.Is(err, load.ErrNotFound):
		return fmt.Errorf("%s is not there: leave out --skip-load", quote(b.o.Keys.Append(nil, 0)))
	case errors.Is(err, load.ErrWrongValue):
		return fmt.Errorf("%w: give the --value-size that was stored, or leave out --skip-load", err)
	}
	return err
}

// fill is the load phase.
func (b *bench) fill(ctx context.Context) (load.Filled, error) {
	each := float64(b.o.Keys.Size) + b.o.Values.Mean()
	if b.o.Keys.Size == 0 {
		each = float64(len(b.o.Keys.Append(nil, 0))) + b.o.Values.Mean()
	}
	show := newProgress(b.stderr, "stored", int64(each*float64(b.o.Records)), nil)
	stop := follow(b.o.Progress, func(p *load.Progress) {
		show.keys.Store(p.Ops.Load())
		show.bytes.Store(p.Bytes.Load())
	})
	filled, err := load.Fill(ctx, b.o)
	stop()
	show.finish()
	if err != nil {
		return filled, fmt.Errorf("load phase: %w", err)
	}
	return filled, nil
}

// write writes the result to standard output and to the files of --report.
func (b *bench) write(res *benchResult) error {
	var errs []error
	for _, path := range b.flags.reports {
		data, err := res.form(reportForm(path))
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("report %s: %w", quote([]byte(path)), cause(err)))
		}
	}
	data, err := res.form(b.output)
	if err == nil {
		err = b.print(string(data))
	}
	return errors.Join(append(errs, err)...)
}

// counters adds up those of all clients.
func (b *bench) counters() (sum client.Counters) {
	for _, c := range b.clients {
		k := c.Counters()
		sum.Gets += k.Gets
		sum.Reads += k.Reads
		sum.OneSidedHits += k.OneSidedHits
		sum.OneSidedMisses += k.OneSidedMisses
		sum.CacheHits += k.CacheHits
		sum.CacheMisses += k.CacheMisses
		sum.Retries.Torn += retries(k)
	}
	return sum
}

func retries(c client.Counters) uint64 {
	r := c.Retries
	return r.Torn + r.Pending + r.Dead + r.Misfit + r.Marked + r.Mismatch + r.Chunk + r.Lease + r.Session
}

// setup is what is measured, for the result.
func (b *bench) setup() benchSetup {
	info, f := b.clients[0].Server(), b.flags
	s := benchSetup{
		Workload: f.workload, Mix: b.o.Mix.String(), Distribution: b.o.Choice.String(), Theta: f.theta,
		Records: f.records, KeySize: len(b.o.Keys.Append(nil, 0)), ValueSize: b.o.Values.String(), ValueMean: b.o.Values.Mean(),
		Prefix: f.prefix, Clients: f.clients, Connections: f.connections, Batch: f.batch, Rate: f.rate,
		DurationSeconds: b.o.Duration.Seconds(), WarmupSeconds: b.o.Warmup.Seconds(), Operations: f.operations, Seed: f.seed,
		Server: info.Address, Fabric: info.Fabric, Device: info.Device, Wait: b.cfg.Wait,
	}
	if w, ok := load.WorkloadByName(f.workload); !ok || w.Mix != b.o.Mix {
		s.Workload = "mix"
	}
	if b.o.Choice == load.Uniform {
		s.Theta = 0
	}
	return s
}
