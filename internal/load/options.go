package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Options say what load to make. Start from a Workload's, or fill in all fields but
// those with a default; Validate reports what is wrong.
type Options struct {
	// Open makes the store of caller number worker, from 0; they are opened one
	// after the other and closed at the end. The load phase opens its own.
	Open func(ctx context.Context, worker int) (Store, error)
	// Classify names the kind of an error, one of a few words. Default: by the
	// errors of this package, and "other".
	Classify func(error) string

	Records uint64 // keys that are there from the beginning, 1 to 1<<32
	Keys    Keys
	Values  Sizes // of values, in bytes

	Mix     Mix
	Choice  Choice  // which key an operation is for
	Theta   float64 // skew of Zipfian choices, above 0 and below 1; default 0.99
	ScanMax int     // a scan is of 1 to so many keys, uniformly; default 100

	Workers int     // callers at a time, 1 to 4,096
	Batch   int     // keys in one call; default 1: single calls
	Rate    float64 // calls for keys per second, all callers together; 0: closed loop

	Warmup     time.Duration // before anything is measured
	Duration   time.Duration // of what is measured; 0: until Operations are done
	Operations uint64        // at most so many are measured; 0: until Duration is over

	Seed uint64 // of all choices

	// FillWorkers is how many callers the load phase has. Default 128. FillBatch is
	// how many keys each of their calls has; default 1.
	FillWorkers, FillBatch int

	// Progress, if not nil, is kept up to date while Fill or Run is under way.
	Progress *Progress
	// Measuring, if not nil, is called when the warm-up is over and no call is
	// under way, just before the first one that counts.
	Measuring func()
}

// Bounds of Options.
const (
	MaxRecords  = 1 << 32
	MaxWorkers  = 4096
	MaxBatch    = 1024
	MaxScan     = 10_000
	MaxDuration = 24 * time.Hour
	MaxRate     = 1e8
	// MaxBytes bounds what all callers together hold of keys and values.
	MaxBytes = 4 << 30

	defaultTheta   = 0.99
	defaultScanMax = 100
	defaultFill    = 128
)

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	def(&o.Theta, defaultTheta)
	def(&o.ScanMax, defaultScanMax)
	def(&o.Batch, 1)
	def(&o.FillWorkers, defaultFill)
	def(&o.FillBatch, 1)
	if uint64(max(o.FillWorkers, 0)) > o.Records && o.Records > 0 {
		o.FillWorkers = int(o.Records)
	}
	o.Keys = o.Keys.withDefaults()
	if o.Classify == nil {
		o.Classify = classify
	}
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	return o
}

func def[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate reports every option that is out of range, all at once; each error
// wraps ErrOptions.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
	}
	if o.Open == nil {
		bad("Open is nil")
	}
	if o.Records < 1 || o.Records > MaxRecords {
		bad("Records is %d, want 1 to %d", o.Records, uint64(MaxRecords))
	}
	if o.Workers < 1 || o.Workers > MaxWorkers {
		bad("Workers is %d, want 1 to %d", o.Workers, MaxWorkers)
	}
	if o.FillWorkers < 1 || o.FillWorkers > MaxWorkers {
		bad("FillWorkers is %d, want 1 to %d", o.FillWorkers, MaxWorkers)
	}
	if o.Batch < 1 || o.Batch > MaxBatch {
		bad("Batch is %d, want 1 to %d", o.Batch, MaxBatch)
	}
	if o.FillBatch < 1 || o.FillBatch > MaxBatch {
		bad("FillBatch is %d, want 1 to %d", o.FillBatch, MaxBatch)
	}
	if o.Batch > 1 && (o.Mix[OpScan] > 0 || o.Mix[OpRMW] > 0 || o.Mix[OpDelete] > 0) {
		bad("Batch is %d, and only get, put and insert have calls for many keys", o.Batch)
	}
	if o.ScanMax < 1 || o.ScanMax > MaxScan {
		bad("ScanMax is %d, want 1 to %d", o.ScanMax, MaxScan)
	}
	if !(o.Theta > 0 && o.Theta < 1) {
		bad("Theta is %v, want above 0 and below 1", o.Theta)
	}
	if !(o.Rate >= 0 && o.Rate <= MaxRate) {
		bad("Rate is %v, want 0 (closed loop) to %.0f a second", o.Rate, float64(MaxRate))
	}
	if o.Warmup < 0 || o.Warmup > MaxDuration {
		bad("Warmup is %v, want 0 to %v", o.Warmup, MaxDuration)
	}
	if o.Duration < 0 || o.Duration > MaxDuration {
		bad("Duration is %v, want 0 to %v", o.Duration, MaxDuration)
	}
	if o.Duration == 0 && o.Operations == 0 {
		bad("Duration and Operations are both 0: there would be no end")
	}
	if o.Operations > math.MaxInt64 {
		bad("Operations is %d, want at most %d", o.Operations, uint64(math.MaxInt64))
	}
	if o.Choice >= numChoices {
		bad("Choice is %d, which is none", o.Choice)
	}
	errs = append(errs, o.Mix.validate(), o.Keys.validate(), o.Values.validate())
	if n := o.bytes(); n > MaxBytes {
		bad("%d callers with values of up to %d bytes, %d in a call, would hold %d bytes, more than %d: have fewer or smaller ones",
			max(o.Workers, o.FillWorkers), o.Values.Max(), max(o.Batch, o.FillBatch), n, uint64(MaxBytes))
	}
	return errors.Join(errs...)
}

// bytes is what the callers hold at most: a value to put and one got for each
// key of a call.
func (o Options) bytes() uint64 {
	each := 2*uint64(o.Values.Max()) + uint64(o.Keys.Size)
	run := uint64(max(o.Workers, 0)) * each * uint64(max(o.Batch, 1))
	fill := uint64(max(o.FillWorkers, 0)) * each * uint64(max(o.FillBatch, 1))
	return max(run, fill)
}
