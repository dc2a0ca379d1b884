package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	Keys      int           `json:"keys"`
	ValueSize int           `json:"value_size"` // bytes
	ReadShare float64       `json:"read_share"` // 0 to 1
	Clients   int           `json:"clients"`    // callers at a time
	Sessions  int           `json:"sessions"`   // connections that they share
	Duration  time.Duration `json:"duration_ns"`
	Prefix    string        `json:"prefix"`
	Seed      uint64        `json:"seed"`
	NoLoad    bool          `json:"no_load"`
}

func (a *app) benchCmd() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure gets and puts",
		Long: `bench stores --keys keys and then lets --clients callers get and put them, each
at random, one call after the other, for --duration. It prints calls per second
and percentiles of the time of a call, as the callers see it. Each value carries
its key's number and is checked.

It writes to the store, under --prefix, and leaves the keys there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			b := &bench{app: a, benchOptions: o}
			return b.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Keys, "keys", 100_000, "number of keys")
	f.IntVar(&o.ValueSize, "value-size", 100, "bytes of a value")
	f.Float64Var(&o.ReadShare, "read-share", 1, "share of gets among the calls, 0 to 1")
	f.IntVar(&o.Clients, "clients", 1, "callers at a time")
	f.IntVar(&o.Sessions, "sessions", 1, "connections that the callers share")
	f.DurationVar(&o.Duration, "duration", 5*time.Second, "how long to measure")
	f.StringVar(&o.Prefix, "prefix", "bench/", "what the keys begin with")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random choices")
	f.BoolVar(&o.NoLoad, "no-load", false, "the keys are there already, from a call with the same --keys, --value-size and --prefix")
	return cmd
}

func (o *benchOptions) check() error {
	var errs []error
	between := func(name string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, usagef("--%s is %d, want %d to %d", name, v, least, most))
		}
	}
	between("keys", o.Keys, 1, 1<<30)
	between("value-size", o.ValueSize, 0, layout.MaxValueLen)
	between("clients", o.Clients, 1, 4096)
	between("sessions", o.Sessions, 1, 1024)
	if !(o.ReadShare >= 0 && o.ReadShare <= 1) {
		errs = append(errs, usagef("--read-share is %v, want 0 to 1", o.ReadShare))
	}
	if o.Duration < 10*time.Millisecond || o.Duration > 24*time.Hour {
		errs = append(errs, usagef("--duration is %v, want 10ms to 24h", o.Duration))
	}
	if len(o.Prefix) > 256 {
		errs = append(errs, usagef("--prefix has %d bytes, want at most 256", len(o.Prefix)))
	}
	return errors.Join(errs...)
}

// A bench is one run.
type bench struct {
	*app
	benchOptions
	sessions []*client.Client
}

// opResult is what is known of one kind of call at the end.
type opResult struct {
	Calls     int64   `json:"calls"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	P999      float64 `json:"p99_9_us"`
	Max       float64 `json:"max_us"`
}

// benchResult is the JSON output of bench.
type benchResult struct {
	Options     benchOptions `json:"options"`
	LoadSeconds float64      `json:"load_seconds"`
	Seconds     float64      `json:"seconds"`
	Gets        opResult     `json:"gets"`
	Puts        opResult     `json:"puts"`
	Reads       uint64       `json:"reads"` // READs posted for the gets
	ReadsPerGet float64      `json:"reads_per_get"`
	OneSided    float64      `json:"one_sided_share"` // of the gets
	Retries     uint64       `json:"retries"`
}

func (b *bench) run(ctx context.Context) (err error) {
	for range b.Sessions {
		c, err := b.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		b.sessions = append(b.sessions, c)
	}
	res := benchResult{Options: b.benchOptions}
	if !b.NoLoad {
		start := time.Now()
		if err := b.load(ctx); err != nil {
			return err
		}
		res.LoadSeconds = time.Since(start).Seconds()
	}
	before := b.counters()
	start := time.Now()
	gets, puts, err := b.measure(ctx)
	if err != nil {
		return err
	}
	elapsed := time.Since(start)
	after := b.counters()
	res.Seconds = elapsed.Seconds()
	res.Gets, res.Puts = summary(gets, elapsed), summary(puts, elapsed)
	if n := float64(after.Gets - before.Gets); n > 0 {
		res.Reads = after.Reads - before.Reads
		res.ReadsPerGet = float64(res.Reads) / n
		res.OneSided = float64(after.OneSidedHits+after.OneSidedMisses-before.OneSidedHits-before.OneSidedMisses) / n
	}
	res.Retries = retries(after) - retries(before)
	if b.output == "json" {
		return b.printJSON(res)
	}
	return b.print(res.text())
}

// counters adds up those of all sessions.
func (b *bench) counters() (sum client.Counters) {
	for _, s := range b.sessions {
		c := s.Counters()
		sum.Gets += c.Gets
		sum.Reads += c.Reads
		sum.OneSidedHits += c.OneSidedHits
		sum.OneSidedMisses += c.OneSidedMisses
		sum.Retries.Torn += retries(c)
	}
	return sum
}

func retries(c client.Counters) uint64 {
	r := c.Retries
	return r.Torn + r.Pending + r.Dead + r.Misfit + r.Marked + r.Mismatch + r.Chunk + r.Lease + r.Session
}

// key is the name of key i: sortable, of one length.
func (b *bench) key(dst []byte, i int) []byte {
	return fmt.Appendf(append(dst, b.Prefix...), "%010d", i)
}

// value fills dst with value number n of key i: both numbers, as far as they
// fit, and then bytes that follow from them.
func (b *bench) value(dst []byte, i int, n uint64) []byte {
	dst = dst[:0]
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:], uint64(i))
	binary.LittleEndian.PutUint64(head[8:], n)
	dst = append(dst, head[:min(16, b.ValueSize)]...)
	for len(dst) < b.ValueSize {
		dst = append(dst, byte(len(dst)*31+i))
	}
	return dst
}

// checkValue says whether v can be a value of key i.
func (b *bench) checkValue(v []byte, i int) error {
	if len(v) != b.ValueSize {
		return fmt.Errorf("key %d has a value of %d bytes, want %d", i, len(v), b.ValueSize)
	}
	if len(v) >= 8 && binary.LittleEndian.Uint64(v) != uint64(i) {
		return fmt.Errorf("key %d has the value of key %d", i, binary.LittleEndian.Uint64(v))
	}
	return nil
}

// loadWorkers is how many puts the loading has in flight: enough for the
// server to put many under one sync.
const loadWorkers = 128

// load stores every key once.
func (b *bench) load(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	show := newProgress(b.stderr, "stored", 0, nil)
	var wg sync.WaitGroup
	for w := range loadWorkers {
		wg.Go(func() {
			c := b.sessions[w%len(b.sessions)]
			var key, value []byte
			for i := w; i < b.Keys && ctx.Err() == nil; i += loadWorkers {
				key, value = b.key(key[:0], i), b.value(value, i, 0)
				if err := c.Put(ctx, key, value); err != nil {
					cancel(err)
					return
				}
				show.keys.Add(1)
				show.bytes.Add(int64(len(key) + len(value)))
			}
		})
	}
	wg.Wait()
	show.finish()
	return context.Cause(ctx)
}

// Histograms hold 100 ns to 60 s with three figures.
const (
	histLow, histHigh = 100, int64(60 * time.Second)
	histFigures       = 3
)

func newHist() *hdrhistogram.Histogram { return hdrhistogram.New(histLow, histHigh, histFigures) }

// measure runs the callers and returns the times of their gets and puts.
func (b *bench) measure(ctx context.Context) (gets, puts *hdrhistogram.Histogram, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gets, puts = newHist(), newHist()
	end := time.Now().Add(b.Duration)
	var mu sync.Mutex // guards gets and puts
	var wg sync.WaitGroup
	for w := range b.Clients {
		wg.Go(func() {
			g, p, err := b.caller(ctx, w, end)
			if err != nil {
				cancel(err)
			}
			mu.Lock()
			defer mu.Unlock()
			gets.Merge(g)
			puts.Merge(p)
		})
	}
	wg.Wait()
	return gets, puts, context.Cause(ctx)
}

// caller is one of the callers: one call after the other until the end.
func (b *bench) caller(ctx context.Context, w int, end time.Time) (gets, puts *hdrhistogram.Histogram, err error) {
	gets, puts = newHist(), newHist()
	rnd := rand.New(rand.NewPCG(b.Seed, uint64(w)))
	c := b.sessions[w%len(b.sessions)]
	buf := make([]byte, b.ValueSize)
	var key, value []byte
	for n := uint64(1); ; n++ {
		if n%16 == 0 && ctx.Err() != nil {
			return gets, puts, nil // another caller has said why
		}
		i := rnd.IntN(b.Keys)
		key = b.key(key[:0], i)
		reading := rnd.Float64() < b.ReadShare
		if !reading {
			value = b.value(value, i, n)
		}
		start := time.Now()
		if !start.Before(end) {
			return gets, puts, nil
		}
		if reading {
			buf, err = c.GetInto(ctx, key, buf)
			took := time.Since(start)
			if err == nil {
				err = b.checkValue(buf, i)
			}
			_ = gets.RecordValue(min(int64(took), histHigh))
		} else {
			err = c.Put(ctx, key, value)
			_ = puts.RecordValue(min(int64(time.Since(start)), histHigh))
		}
		if errors.Is(err, client.ErrNotFound) {
			err = fmt.Errorf("%s is not there: leave out --no-load", quote(key))
		}
		if err != nil {
			return gets, puts, err
		}
	}
}

func summary(h *hdrhistogram.Histogram, elapsed time.Duration) opResult {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	r := opResult{Calls: h.TotalCount(), PerSecond: float64(h.TotalCount()) / elapsed.Seconds()}
	if r.Calls > 0 {
		r.P50, r.P99, r.P999 = us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99)), us(h.ValueAtQuantile(99.9))
		r.Max = us(h.Max())
	}
	return r
}

// text is the result as a table.
func (r benchResult) text() string {
	o := r.Options
	head := fmt.Sprintf("%s keys of %d B, %.0f %% gets, %d callers on %d sessions, %s\n", thousands(int64(o.Keys)), o.ValueSize,
		o.ReadShare*100, o.Clients, o.Sessions, shortDuration(time.Duration(r.Seconds*1e9)))
	rows := []string{"\tcalls\tper second\tp50\tp99\tp99.9\tmax\n"}
	for _, op := range []struct {
		name string
		opResult
	}{{"get", r.Gets}, {"put", r.Puts}} {
		if op.Calls == 0 {
			continue
		}
		us := func(v float64) string { return shortDuration(time.Duration(v * 1e3)) }
		rows = append(rows, strings.Join([]string{op.name, thousands(op.Calls), thousands(int64(op.PerSecond)),
			us(op.P50), us(op.P99), us(op.P999), us(op.Max)}, "\t")+"\n")
	}
	tail := ""
	if r.Gets.Calls > 0 {
		tail = fmt.Sprintf("READs per get %.2f, answered one-sidedly %.2f %%, retries %s\n", r.ReadsPerGet, r.OneSided*100, thousands(int64(r.Retries)))
	}
	return head + table(rows) + tail
}
