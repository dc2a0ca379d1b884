package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestValues: a value is checked for its key and for every byte of it.
func TestValues(t *testing.T) {
	for _, size := range []int{0, 3, 8, 15, 16, 17, 100, 4096, 4096 + 16 + 1, 100_000} {
		v := newValues(FixedSize(size))
		for _, key := range []uint64{0, 7, 1 << 40} {
			got := v.make(nil, key, 3)
			if err := v.check(got, key); len(got) != size || err != nil {
				t.Errorf("size %d: %d bytes, %v", size, len(got), err)
			}
			if err := v.check(got, key+1); size >= 8 && !errors.Is(err, ErrWrongValue) {
				t.Errorf("size %d: the value of another key passes: %v", size, err)
			}
			if err := v.check(append(slices.Clone(got), 0), key); err == nil {
				t.Errorf("size %d: one byte more passes", size)
			}
			for i := range got {
				if size > checkedWhole+valueHead && i >= valueHead && i < size-checkedPart {
					continue // of a large value, parts are compared
				}
				if size <= valueHead && i >= 8 {
					continue // its own number: any is right
				}
				bad := slices.Clone(got)
				bad[i] ^= 0x80
				if err := v.check(bad, key); err == nil {
					t.Errorf("size %d: byte %d altered passes", size, i)
				}
			}
		}
	}
}

// TestValuesDiffer: two puts of a key are told apart, and sizes follow from the
// numbers.
func TestValuesDiffer(t *testing.T) {
	sizes, err := ParseSizes("50-200")
	if err != nil {
		t.Fatal(err)
	}
	v := newValues(sizes)
	seen := map[string]bool{}
	lengths := map[int]int{}
	for n := range uint64(1000) {
		value := v.make(nil, 5, n)
		if err := v.check(value, 5); err != nil {
			t.Fatal(err)
		}
		if seen[string(value[valueHead:])] && n < 50 {
			t.Errorf("value %d has the body of a former one", n)
		}
		seen[string(value[valueHead:])] = true
		lengths[len(value)]++
		again := v.make(make([]byte, 3), 5, n)
		if !bytes.Equal(again, value) {
			t.Errorf("value %d is not always the same", n)
		}
		if len(value) > 60 && v.check(value[:55], 5) == nil {
			t.Errorf("value %d of %d bytes passes when it is cut to 55", n, len(value))
		}
	}
	if len(lengths) < 140 {
		t.Errorf("%d of 151 sizes came", len(lengths))
	}
}

// TestSizes: what distributions say, and what they come to.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		text           string
		min, max       int
		mean, meanSlip float64
	}{
		{"100", 100, 100, 100, 0},
		{"4KiB", 4096, 4096, 4096, 0},
		{"64 - 1KiB", 64, 1024, 544, 0},
		{"64:90,1-4096:9,1MiB:1", 1, 1 << 20, 0.9*64 + 0.09*2048.5 + 0.01*(1<<20), 1},
		{"0", 0, 0, 0, 0},
		{"etc", 1, lawMost, 329, 20}, // scale/(1-shape) = 329
		{"lognormal:230:1.2", 1, lawMost, 230 * math.Exp(0.72), 25},
	} {
		s, err := ParseSizes(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if s.String() != tc.text || s.Min() != tc.min || s.Max() > tc.max || tc.max < lawMost && s.Max() != tc.max || math.Abs(s.Mean()-tc.mean) > tc.meanSlip {
			t.Errorf("%s: %v, %d to %d, mean %v, want %d to %d, mean %v", tc.text, s, s.Min(), s.Max(), s.Mean(), tc.min, tc.max, tc.mean)
		}
		rnd, sum, below := newRNG(1, 0), 0.0, 0
		const n = 200_000
		for range n {
			size := s.at(rnd.next())
			if size < s.Min() || size > s.Max() {
				t.Fatalf("%s: %d", tc.text, size)
			}
			sum += float64(size)
			if size <= 170 {
				below++
			}
		}
		if got := sum / n; math.Abs(got-s.Mean()) > 0.05*s.Mean()+1e-9 {
			t.Errorf("%s: %v on average, want %v", tc.text, got, s.Mean())
		}
		if share := float64(below) / n; tc.text == "etc" && math.Abs(share-0.5) > 0.03 { // the median is 168
			t.Errorf("etc: %v are at most 170", share)
		}
	}
	for _, bad := range []string{"", "x", "-1", "1-", "5-4", "1,2", "1:1,2", "1:0", "1:1,2:x", "1:NaN,2:1", "2GiB", "1025MiB", "99999999999", "lognormal:", "lognormal:1:9", "lognormal:0:1", "1e3", strings.Repeat("1:1,", 64) + "1:1"} {
		if _, err := ParseSizes(bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestKeys: of one length, in the order of numbers unless hashed, all different.
func TestKeys(t *testing.T) {
	k := Keys{Prefix: "bench/"}
	if got := string(k.Append([]byte("x"), 1234)); got != "xbench/0000001234" {
		t.Errorf("key %q", got)
	}
	if got := string(Keys{Prefix: "key:", Size: 16}.Append(nil, 4_294_967_301)); got != "key:004294967301" {
		t.Errorf("key %q", got)
	}
	if got := string(k.Append(nil, maxKeyNumber)); got != "bench/9999999999" {
		t.Errorf("key %q", got)
	}
	last := ""
	hashed := map[string]bool{}
	for i := range uint64(2000) {
		key := string(k.Append(nil, i*i*i))
		if key < last || key == last && i > 0 {
			t.Fatalf("%q behind %q", key, last)
		}
		last = key
		h := string(Keys{Prefix: "h", Hashed: true}.Append(nil, i))
		if len(h) != 17 || hashed[h] || h != fmt.Sprintf("h%016x", mix64(i)) {
			t.Fatalf("key %d is %q", i, h)
		}
		hashed[h] = true
	}
	for _, bad := range []Keys{{Prefix: "x", Size: 10}, {Prefix: strings.Repeat("x", 4090)}, {Size: 15, Hashed: true}} {
		if err := bad.withDefaults().validate(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestMix: shares are read, written and kept.
func TestMix(t *testing.T) {
	m, err := ParseMix("get=80, put=15,delete=5")
	if err != nil || m.String() != "get=80,put=15,delete=5" {
		t.Fatal(m, err)
	}
	b, count, rnd := m.bounds(), [numOps]float64{}, newRNG(3, 0)
	const n = 100_000
	for range n {
		bits := rnd.next()
		op := Op(0)
		for ; bits >= b[op] && op < numOps-1; op++ {
		}
		count[op]++
	}
	for op, share := range m {
		if p := share / 100; math.Abs(count[op]-n*p) > 5*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%v came %v times of %d, want a share of %v", Op(op), count[op], n, p)
		}
	}
	if got := (Mix{OpGet: 0.9, OpPut: 1 - 0.9}).String(); got != "get=0.9,put=0.1" {
		t.Errorf("mix %q", got)
	}
	for _, bad := range []string{"", "get", "get=", "get=-1", "get=NaN", "get=1,get=2", "fly=1", "get=0", "get=1e10"} {
		if _, err := ParseMix(bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
