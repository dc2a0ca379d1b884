package sim

import "time"

// A chance is a source of decisions about one thing. Two chances with the same
// seed and name decide the same; each question takes one number off it.
type chance struct{ state uint64 }

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the
// input moves every bit of the output.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// about makes a chance for the thing that the numbers name.
func about(seed uint64, name ...uint64) chance {
	s := mix(seed ^ 0x9e3779b97f4a7c15)
	for _, n := range name {
		s = mix(s ^ n + 0x9e3779b97f4a7c15)
	}
	return chance{s}
}

// hashName turns a name into a number (FNV-1a).
func hashName(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	return mix(c.state)
}

// n returns a number below n.
func (c *chance) n(n int) int { return int(c.next() % uint64(n)) }

// is reports true with probability p.
func (c *chance) is(p float64) bool { return float64(c.next()>>11)/(1<<53) < p }

// delay returns a time below most, short ones more often: the scale is even in
// the logarithm, from a microsecond up.
func (c *chance) delay(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	scale := time.Microsecond
	for scale < most && c.n(5) > 0 {
		scale *= 4
	}
	return time.Duration(c.next() % uint64(min(scale, most)))
}

// shuffle puts list into any order.
func (c *chance) shuffle(list []piece) {
	for i := len(list) - 1; i > 0; i-- {
		j := c.n(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}
