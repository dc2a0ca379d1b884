package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes is a distribution of sizes in bytes: the size of each value follows from
// its key and number alone. The zero value is size 0 only. Made by ParseSizes or
// FixedSize.
type Sizes struct {
	text string
	// These are ranges of sizes, each taken with its share of 1<<32; the shares are
	// added up.
	ranges []sizeRange
}

// A sizeRange is sizes from lo to hi, all equally often.
type sizeRange struct {
	lo, hi int
	below  uint64 // of 1<<32: added up
}

// MaxValue bounds sizes, in bytes.
const MaxValue = 1 << 30

// maxRanges bounds the parts of a list.
const maxRanges = 64

// FixedSize is one size.
func FixedSize(n int) Sizes {
	return Sizes{text: strconv.Itoa(n), ranges: []sizeRange{{n, n, 1 << 32}}}
}

// lawRanges is how many ranges stand for a law, and lawMost where its tail ends.
const (
	lawRanges = maxRanges
	lawMost   = 1 << 20
)

// etcQuantile is the law of value sizes in the ETC pool at Facebook: a generalized
// Pareto law with scale 214.476 and shape 0.348238 (Atikoglu et al., "Workload
// Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, section 5).
func etcQuantile(u float64) float64 {
	const scale, shape = 214.476, 0.348238
	return scale / shape * (math.Pow(1-u, -shape) - 1)
}

// parseLaw reads "etc" and "lognormal:MEDIAN:SIGMA"; law is nil if text is
// neither.
func parseLaw(text string) (law func(u float64) float64, err error) {
	if text == "etc" {
		return etcQuantile, nil
	}
	rest, ok := strings.CutPrefix(text, "lognormal:")
	if !ok {
		return nil, nil
	}
	medianText, sigmaText, _ := strings.Cut(rest, ":")
	median, err := parseSize(medianText)
	sigma, sigmaErr := strconv.ParseFloat(sigmaText, 64)
	if err != nil || sigmaErr != nil || median < 1 || median > lawMost || !(sigma > 0 && sigma <= 4) {
		return nil, fmt.Errorf("%w: sizes %q: want lognormal:MEDIAN:SIGMA with a median of 1 to %d bytes and a sigma above 0 and up to 4", ErrOptions, text, lawMost)
	}
	return func(u float64) float64 {
		return float64(median) * math.Exp(sigma*math.Sqrt2*math.Erfinv(2*u-1))
	}, nil
}

// lawSizes cuts a law, given by its quantiles, into ranges. They halve towards
// the tail, so that it is as fine as the body; what is above lawMost is lawMost.
func lawSizes(text string, quantile func(u float64) float64) Sizes {
	s := Sizes{text: text}
	lo, body := 1, lawRanges/2
	add := func(u float64) {
		hi := int(min(max(quantile(u), float64(lo)), lawMost))
		s.ranges = append(s.ranges, sizeRange{lo: lo, hi: hi, below: uint64(u * (1 << 32))})
		lo = min(hi+1, lawMost)
	}
	for i := 1; i < body; i++ {
		add(float64(i) / float64(body))
	}
	for rest := 1 / float64(body); len(s.ranges) < lawRanges-1 && rest > 1e-6; {
		rest /= 2
		add(1 - rest)
	}
	last := &s.ranges[len(s.ranges)-1]
	last.below = 1 << 32
	return s
}

// ParseSizes reads a distribution:
//
//	100                 one size
//	64-1024             all sizes from 64 to 1,024, equally often
//	64:90,1-4096:9,1MiB:1   a list of these with shares
//	lognormal:230:1.2   a lognormal law with this median and sigma
//	etc                 the law of the ETC pool at Facebook, median 170 bytes
//
// Sizes may have a unit: B, KiB, MiB. Laws end at 1 MiB.
func ParseSizes(text string) (Sizes, error) {
	if law, err := parseLaw(text); err != nil {
		return Sizes{}, err
	} else if law != nil {
		return lawSizes(text, law), nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > maxRanges {
		return Sizes{}, fmt.Errorf("%w: sizes %q: %d parts, at most %d", ErrOptions, text, len(parts), maxRanges)
	}
	var ranges []sizeRange
	var shares []float64
	total := 0.0
	for _, part := range parts {
		span, shareText, weighted := strings.Cut(part, ":")
		share := 1.0
		if weighted != (len(parts) > 1) {
			return Sizes{}, fmt.Errorf("%w: sizes %q: want N, LO-HI, a list of SIZES:SHARE, lognormal:MEDIAN:SIGMA, or etc", ErrOptions, text)
		}
		if weighted {
			var err error
			if share, err = strconv.ParseFloat(shareText, 64); err != nil || !(share > 0 && share <= maxShare) {
				return Sizes{}, fmt.Errorf("%w: sizes %q: share %q, want a number above 0", ErrOptions, text, shareText)
			}
		}
		loText, hiText, isRange := strings.Cut(span, "-")
		lo, err := parseSize(loText)
		hi := lo
		if err == nil && isRange {
			hi, err = parseSize(hiText)
		}
		if err != nil {
			return Sizes{}, fmt.Errorf("%w: %v", ErrOptions, err)
		}
		if lo > hi {
			return Sizes{}, fmt.Errorf("%w: sizes %q: %d-%d ends before it begins", ErrOptions, text, lo, hi)
		}
		ranges, shares, total = append(ranges, sizeRange{lo: lo, hi: hi}), append(shares, share), total+share
	}
	sum := 0.0
	for i := range ranges {
		sum += shares[i]
		ranges[i].below = uint64(sum / total * (1 << 32))
	}
	ranges[len(ranges)-1].below = 1 << 32
	return Sizes{text, ranges}, nil
}

func parseSize(text string) (int, error) {
	digits, unit := strings.TrimSpace(text), 1
	for _, u := range []struct {
		suffix string
		bytes  int
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no size: want bytes, as 100, 4KiB or 1MiB", text)
	}
	if n > MaxValue/uint64(unit) {
		return 0, fmt.Errorf("%q is above %d bytes", text, MaxValue)
	}
	return int(n) * unit, nil
}

func (s Sizes) validate() error {
	for _, r := range s.ranges {
		if r.lo < 0 || r.hi > MaxValue {
			return fmt.Errorf("%w: a value of %d to %d bytes, want 0 to %d", ErrOptions, r.lo, r.hi, MaxValue)
		}
	}
	return nil
}

// String is the distribution as ParseSizes reads it.
func (s Sizes) String() string {
	return cmp.Or(s.text, "0")
}

// Min and Max are the smallest and the largest size.
func (s Sizes) Min() int {
	if len(s.ranges) == 0 {
		return 0
	}
	return slices.MinFunc(s.ranges, func(a, b sizeRange) int { return cmp.Compare(a.lo, b.lo) }).lo
}

// Max is the largest size.
func (s Sizes) Max() int {
	if len(s.ranges) == 0 {
		return 0
	}
	return slices.MaxFunc(s.ranges, func(a, b sizeRange) int { return cmp.Compare(a.hi, b.hi) }).hi
}

// Mean is the average.
func (s Sizes) Mean() float64 {
	mean, before := 0.0, uint64(0)
	for _, r := range s.ranges {
		mean += float64(r.lo+r.hi) / 2 * float64(r.below-before) / (1 << 32)
		before = r.below
	}
	return mean
}

// at is the size that belongs to 64 well-mixed bits.
func (s *Sizes) at(bits uint64) int {
	if len(s.ranges) == 0 {
		return 0
	}
	if len(s.ranges) == 1 && s.ranges[0].lo == s.ranges[0].hi {
		return s.ranges[0].lo
	}
	part := bits >> 32
	for i := range s.ranges {
		if r := &s.ranges[i]; part < r.below {
			return r.lo + int((bits&(1<<32-1))*uint64(r.hi-r.lo+1)>>32)
		}
	}
	return s.ranges[len(s.ranges)-1].hi
}
