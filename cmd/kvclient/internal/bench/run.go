package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/internal/load/rdmakv"
)

// A bench is one run of the command: its flags, the load that they describe, and
// the clients that the callers share.
type bench struct {
	*app.App
	flags   *flags
	o       load.Options
	clients []*client.Client

	before client.Counters // of all clients, when the measurement began
	cpu    time.Duration   // that this process had used by then
}

// noStore stands for a store while options are only checked.
func noStore(context.Context, int) (load.Store, error) {
	return nil, errors.New("no store")
}

// failedError ends bench with exitError where operations failed.
type failedError struct{ text string }

func (e failedError) Error() string { return e.text }

// run connects, fills, measures and writes. An operation that failed does not end
// the run: the times of the others are still worth knowing, and the exit code
// tells.
func (b *bench) run(ctx context.Context) error {
	// All at once before anything is measured: a server that has no room for them
	// says so now.
	for range b.flags.connections {
		c, err := b.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		b.clients = append(b.clients, c)
	}
	b.o.Open, b.o.Classify, b.o.Progress = rdmakv.Open(b.clients...), rdmakv.Classify, new(load.Progress)
	res := result{Bench: b.describe()}
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
	if b.flags.bounded > 0 {
		b.o.Open = rdmakv.OpenBounded(b.flags.bounded, b.clients...)
	}
	if b.flags.registered {
		b.o.Open = rdmakv.OpenRegistered(max(1, b.o.Values.Max()), b.clients...)
	}
	// The warm-up is no part of what is counted, so counting begins when the load
	// says so.
	b.o.Measuring = func() { b.before, b.cpu = b.counters(), processTime() }
	show := b.showRun()
	// An interruption is no error of Run: it ends the measurement early, with a
	// result.
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
	// After the result has been written: what failed stands behind it.
	case result.Errors+result.WarmupErrors > 0:
		return failedError{failureText(result)}
	case result.Interrupted:
		return failedError{"interrupted: the result is of what was done until then"}
	}
	return nil
}

// probe checks that the keys are there, with values of the expected size. A
// measurement of gets that find nothing would look very fast.
func (b *bench) probe(ctx context.Context) error {
	err := load.Probe(ctx, b.o)
	switch {
	case errors.Is(err, load.ErrNotFound):
		return fmt.Errorf("%s is not there: leave out --skip-load", cli.Quote(b.o.Keys.Append(nil, 0)))
	case errors.Is(err, load.ErrWrongValue):
		return fmt.Errorf("%w: give the --value-size that was stored, or leave out --skip-load", err)
	}
	return err
}

// fill is the load phase: it stores the keys, as many at a time as the server
// takes, because how fast that goes is not what is measured.
func (b *bench) fill(ctx context.Context) (load.Filled, error) {
	// How many bytes there are to come, for the bar; sizes of values vary around
	// their mean.
	each := float64(b.o.Keys.Size) + b.o.Values.Mean()
	if b.o.Keys.Size == 0 {
		each = float64(len(b.o.Keys.Append(nil, 0))) + b.o.Values.Mean()
	}
	show := app.NewProgress(b.Stderr, "stored", int64(each*float64(b.o.Records)), nil)
	stop := follow(b.o.Progress, func(p *load.Progress) {
		show.Keys.Store(p.Ops.Load())
		show.Bytes.Store(p.Bytes.Load())
	})
	filled, err := load.Fill(ctx, b.o)
	stop()
	show.Finish()
	if err != nil {
		return filled, fmt.Errorf("load phase: %w", err)
	}
	return filled, nil
}

// write writes the result to standard output and to the files of --report. A file
// that cannot be written does not keep the others, or the output, from being
// written.
func (b *bench) write(res *result) error {
	var errs []error
	for _, path := range b.flags.reports {
		data, err := res.form(reportForm(path))
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("report %s: %w", cli.Quote([]byte(path)), cli.Cause(err)))
		}
	}
	data, err := res.form(b.Output)
	if err == nil {
		err = b.Print(string(data))
	}
	return errors.Join(append(errs, err)...)
}

// counters adds up those of all clients, as far as the result uses them. Retries of
// all kinds go into one field.
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

// retries are the reasons for which a get READ again, all together.
func retries(c client.Counters) uint64 {
	r := c.Retries
	return r.Torn + r.Pending + r.Dead + r.Misfit + r.Marked + r.Mismatch + r.Chunk + r.Lease + r.Session
}

// describe is what is measured, for the result: everything that is needed to
// measure it again.
func (b *bench) describe() setup {
	info, f := admin.Of(b.clients[0]).Server(), b.flags
	s := setup{
		Workload: f.workload, Mix: b.o.Mix.String(), Distribution: b.o.Choice.String(), Theta: f.theta,
		Records: f.records, KeySize: len(b.o.Keys.Append(nil, 0)), ValueSize: b.o.Values.String(), ValueMean: b.o.Values.Mean(),
		Prefix: f.prefix, Clients: f.clients, Connections: f.connections, Batch: f.batch, Registered: f.registered, Rate: f.rate, BoundSeconds: f.bounded.Seconds(),
		DurationSeconds: b.o.Duration.Seconds(), WarmupSeconds: b.o.Warmup.Seconds(), Operations: f.operations, Seed: f.seed,
		Server: info.Address, Fabric: info.Fabric, Device: info.Device, Wait: b.Config.Wait,
	}
	// A workload with another mix is not the one of that name.
	if w, ok := load.WorkloadByName(f.workload); !ok || w.Mix != b.o.Mix {
		s.Workload = "mix"
	}
	// A field that plays no part would make two equal runs look different.
	if b.o.Choice == load.Uniform {
		s.Theta = 0
	}
	return s
}
