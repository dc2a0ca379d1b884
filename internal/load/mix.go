package load

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Mix is the share of each operation, in parts of any whole.
type Mix [numOps]float64

// ParseMix reads "get=95,put=5".
func ParseMix(text string) (m Mix, err error) {
	seen := [numOps]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, share, ok := strings.Cut(part, "=")
		op := opByName(strings.TrimSpace(name))
		if !ok || op == numOps {
			return Mix{}, fmt.Errorf("%w: mix %q: %q is none of get=N, put=N, insert=N, scan=N, rmw=N, delete=N", ErrOptions, text, part)
		}
		if seen[op] {
			return Mix{}, fmt.Errorf("%w: mix %q: %s is there twice", ErrOptions, text, op)
		}
		seen[op] = true
		if m[op], err = strconv.ParseFloat(strings.TrimSpace(share), 64); err != nil {
			return Mix{}, fmt.Errorf("%w: mix %q: %q is no number", ErrOptions, text, share)
		}
	}
	return m, m.validate()
}

func opByName(name string) Op {
	for op := range numOps {
		if opNames[op] == name {
			return op
		}
	}
	return numOps
}

// maxShare bounds a share, so that sums stay exact enough.
const maxShare = 1e9

// validate refuses shares out of range, and a mix of nothing.
func (m Mix) validate() error {
	sum := 0.0
	for op, share := range m {
		if !(share >= 0 && share <= maxShare) {
			return fmt.Errorf("%w: the share of %s is %v, want 0 to %.0f", ErrOptions, Op(op), share, float64(maxShare))
		}
		sum += share
	}
	if sum == 0 {
		return fmt.Errorf("%w: all shares of the mix are 0", ErrOptions)
	}
	return nil
}

// String writes the mix as ParseMix reads it, shares in nine figures.
func (m Mix) String() string {
	var parts []string
	for op, share := range m {
		if share > 0 {
			parts = append(parts, opNames[op]+"="+strconv.FormatFloat(share, 'g', 9, 64))
		}
	}
	return strings.Join(parts, ",")
}

// bounds are the shares added up, as bounds of 64 random bits.
func (m Mix) bounds() (b [numOps]uint64) {
	sum, total := 0.0, 0.0
	for _, share := range m {
		total += share
	}
	for op, share := range m {
		sum += share
		if sum >= total { // the last one that has a share, and those behind it
			b[op] = math.MaxUint64
		} else {
			b[op] = uint64(sum / total * (1 << 63) * 2)
		}
	}
	return b
}

// A Workload is a mix and the choice of keys that belongs to it.
type Workload struct {
	Name   string
	Text   string // what it stands for
	Mix    Mix
	Choice Choice
	Value  int // bytes of a value: 10 fields of 100 bytes for those of YCSB
}

// Workloads are those of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems
// with YCSB", SoCC 2010, and its workloads/ files), and two of one operation.
func Workloads() []Workload {
	return []Workload{
		{"a", "YCSB A, update heavy: a session store", Mix{OpGet: 50, OpPut: 50}, Zipfian, 1000},
		{"b", "YCSB B, read mostly: photo tagging", Mix{OpGet: 95, OpPut: 5}, Zipfian, 1000},
		{"c", "YCSB C, read only: a cache of profiles", Mix{OpGet: 100}, Zipfian, 1000},
		{"d", "YCSB D, read latest: status updates", Mix{OpGet: 95, OpInsert: 5}, Latest, 1000},
		{"e", "YCSB E, short ranges: threads of messages", Mix{OpScan: 95, OpInsert: 5}, Zipfian, 1000},
		{"f", "YCSB F, read-modify-write: a database of users", Mix{OpGet: 50, OpRMW: 50}, Zipfian, 1000},
		{"get", "gets only", Mix{OpGet: 100}, Uniform, 100},
		{"put", "puts of keys that exist", Mix{OpPut: 100}, Uniform, 100},
	}
}

// WorkloadByName finds a workload.
func WorkloadByName(name string) (Workload, bool) {
	for _, w := range Workloads() {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}
