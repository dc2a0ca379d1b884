package sim

import "time"

// Adversity says what the network does to its users beyond carrying their
// messages. The zero value is a fabric that behaves: everything happens at
// once, in order. Probabilities are between 0 and 1 and are asked per request.
type Adversity struct {
	// Delay bounds what one request, answer or acknowledgement usually takes;
	// about half of them take no time at all.
	Delay time.Duration
	// Late is how often a READ takes up to LateMost instead, loading its words
	// all the while.
	Late     float64
	LateMost time.Duration
	// Torn is how often the pieces of a READ are loaded in any order and at
	// different times or steps, and not all at one instant. Half of the torn
	// ones are cut into words, half into lines of 64 bytes.
	Torn float64
	// Lose is how often a request ends its connection: lost on the way, or
	// carried out with its acknowledgement lost, or refused for a reason that
	// the verbs know.
	Lose float64
	// Setup is how often a message of the connection manager is lost, doubled
	// or late.
	Setup float64
	// ReuseKeys hands out keys and addresses of deregistered memory again at
	// once, and those of a host's last life to its next.
	ReuseKeys bool
}

// Delays is adversity that loses nothing: any conforming program works, and the
// conformance suite passes, but the order may differ from what a program
// expects.
func Delays(most time.Duration) Adversity {
	return Adversity{Delay: most, Torn: 0.5, ReuseKeys: false}
}

// Storm is everything at once.
func Storm() Adversity {
	return Adversity{
		Delay: 2 * time.Millisecond, Late: 0.01, LateMost: 5 * time.Second,
		Torn: 0.6, Lose: 0.0005, Setup: 0.1, ReuseKeys: true,
	}
}

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
