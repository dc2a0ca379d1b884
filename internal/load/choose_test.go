package load

import (
	"math"
	"testing"
)

// TestZipfLaw draws many ranks and compares how often they come with 1/k^theta:
// exactly, within chance, for the first two, and for the others within what the
// method promises.
func TestZipfLaw(t *testing.T) {
	draws := 400_000.0
	if testing.Short() {
		draws = 50_000
	}
	for _, tc := range []struct {
		n     uint64
		theta float64
	}{{10, 0.99}, {1000, 0.99}, {100_000, 0.99}, {1000, 0.5}, {1000, 0.9}, {5_000_000, 0.7}} {
		z := newZipf(tc.n, tc.theta)
		if want := zetaOfSum(min(tc.n, 200_000), tc.theta); tc.n <= 200_000 && math.Abs(z.zetan-want) > 1e-9*want {
			t.Errorf("n %d: zeta is %v, want %v", tc.n, z.zetan, want)
		}
		rnd := newRNG(11, tc.n)
		first := [2]float64{}
		buckets := map[int]float64{} // by the logarithm of rank+1 to base 4
		for range int(draws) {
			k := z.rank(rnd.float())
			if k >= tc.n {
				t.Fatalf("n %d: rank %d", tc.n, k)
			}
			if k < 2 {
				first[k]++
			}
			buckets[int(math.Log2(float64(k+1)))/2]++
		}
		for k, got := range first {
			p := math.Pow(float64(k+1), -tc.theta) / z.zetan
			if sigma := math.Sqrt(draws * p * (1 - p)); math.Abs(got-draws*p) > 5*sigma {
				t.Errorf("n %d theta %v: rank %d came %v times, want %.0f with a sigma of %.0f", tc.n, tc.theta, k, got, draws*p, sigma)
			}
		}
		for b, got := range buckets {
			lo, hi := uint64(1)<<(2*b), min(uint64(1)<<(2*b+2)-1, tc.n)
			p := (z.zetaOf(hi) - z.zetaOf(lo-1)) / z.zetan
			if lo == 1 {
				p = z.zetaOf(hi) / z.zetan
			}
			if want := draws * p; math.Abs(got-want) > 0.12*want+5*math.Sqrt(want) {
				t.Errorf("n %d theta %v: ranks %d to %d came %v times, want %.0f", tc.n, tc.theta, lo-1, hi-1, got, want)
			}
		}
	}
}

// TestZeta compares the formula with YCSB's own constant for ten billion items.
func TestZeta(t *testing.T) {
	z := newZipf(scrambledOver, 0.99)
	if want := 26.46902820178302; math.Abs(z.zetan-want) > 1e-7 {
		t.Errorf("zeta is %.14f, want %.14f", z.zetan, want)
	}
	if z.power != 100 {
		t.Errorf("theta 0.99 is raised to %d", z.power)
	}
	slow := z
	slow.power = 0
	for i := range 1000 {
		x := z.eta*float64(i)/1000 - z.eta + 1
		if a, b := z.raise(x), slow.raise(x); math.Abs(a-b) > 1e-11*b {
			t.Errorf("%v to the 100th is %v and %v", x, a, b)
		}
	}
}

// TestGrow: a choice over more and more keys is that of its size.
func TestGrow(t *testing.T) {
	z := newZipf(10, 0.99)
	for _, n := range []uint64{11, 999, 1000, 1001, 50_000} {
		z.grow(n)
		if fresh := newZipf(n, 0.99); z != fresh {
			t.Errorf("grown to %d: %+v, want %+v", n, z, fresh)
		}
	}
}

// TestScrambled: popular keys are spread over all of them, the same for all
// callers and seeds.
func TestScrambled(t *testing.T) {
	const keys = 1000
	var first uint64
	for seed := range uint64(4) {
		c := newChooser(Zipfian, 0.99, keys, seed, seed)
		count := make([]int, keys)
		for range 100_000 {
			count[c.next(keys)]++
		}
		most, chosen, low := 0, 0, 0
		for k, n := range count {
			if n > count[most] {
				most = k
			}
			if n > 0 {
				chosen++
			}
			if k < keys/2 {
				low += n
			}
		}
		// Rank 0 has a share of 1/zeta = 3.8 %, beside what is folded onto its key.
		if share := float64(count[most]) / 100_000; share < 0.034 || share > 0.046 || chosen < 990 || low < 30_000 || low > 70_000 {
			t.Errorf("seed %d: the most popular key has %.2f %%, %d keys were chosen, %d of the lower half", seed, share*100, chosen, low)
		}
		if seed == 0 {
			first = uint64(most)
		} else if uint64(most) != first {
			t.Errorf("seed %d: the most popular key is %d, and was %d", seed, most, first)
		}
	}
	if first != fnv64(0)%keys {
		t.Errorf("the most popular key is %d, want %d", first, fnv64(0)%keys)
	}
}

// TestFNV: the hash is YCSB's. The values are of its Utils.fnvhash64.
func TestFNV(t *testing.T) {
	// 0: eight multiplications of the offset basis; the sign is taken off.
	h := uint64(0xcbf29ce484222325)
	for range 8 {
		h *= 1099511628211
	}
	if int64(h) < 0 {
		h = -h
	}
	if got := fnv64(0); got != h {
		t.Errorf("fnv64(0) = %d, want %d", got, h)
	}
	for i := range uint64(10_000) {
		if int64(fnv64(i)) < 0 {
			t.Errorf("fnv64(%d) is negative", i)
		}
	}
}

// TestLatest: the newest keys come most often, and all are there.
func TestLatest(t *testing.T) {
	c := newChooser(Latest, 0.99, 100, 3, 0)
	for n := uint64(100); n < 120; n++ {
		newest := 0
		for range 2000 {
			k := c.next(n)
			if k >= n {
				t.Fatalf("key %d of %d", k, n)
			}
			if k == n-1 {
				newest++
			}
		}
		if newest < 250 { // 1/zeta(100) is 19 %
			t.Errorf("%d keys: the newest came %d times of 2000", n, newest)
		}
	}
}

// TestUniform: within chance, each key comes equally often.
func TestUniform(t *testing.T) {
	const keys, draws = 64, 640_000
	c := newChooser(Uniform, 0.99, keys, 5, 0)
	count := [keys]float64{}
	for range draws {
		count[c.next(keys)]++
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - draws/keys) * (n - draws/keys) / (draws / keys)
	}
	if chi < 63-5*11.3 || chi > 63+5*11.3 { // 63 degrees of freedom, a sigma of 11.2
		t.Errorf("chi square is %.0f", chi)
	}
}

func BenchmarkChoose(b *testing.B) {
	for choice := range numChoices {
		b.Run(choice.String(), func(b *testing.B) {
			c := newChooser(choice, 0.99, 1_000_000, 1, 0)
			for b.Loop() {
				c.next(1_000_000)
			}
		})
	}
}
