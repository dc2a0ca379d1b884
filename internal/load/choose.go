package load

import "math/bits"

// A Choice is how an operation chooses its key among those that are there.
type Choice uint8

// The choices.
const (
	// Uniform: each key equally often.
	Uniform Choice = iota
	// Zipfian: few keys often, most of them seldom, the popular ones spread over
	// all keys: YCSB's scrambled Zipfian choice.
	Zipfian
	// Latest: Zipfian, with the key inserted last as the most popular.
	Latest
	numChoices
)

var choiceNames = [numChoices]string{"uniform", "zipf", "latest"}

// String returns the name that ChoiceByName finds.
func (c Choice) String() string {
	if c < numChoices {
		return choiceNames[c]
	}
	return "unknown"
}

// ChoiceByName finds "uniform", "zipf" or "latest".
func ChoiceByName(name string) (Choice, bool) {
	for c := range numChoices {
		if choiceNames[c] == name {
			return c, true
		}
	}
	return 0, false
}

// A chooser chooses keys for one caller.
type chooser struct {
	choice Choice
	rnd    rng
	zipf   zipf
}

// scrambledOver is how many items YCSB's scrambled Zipfian choice is over, before
// they are folded onto the keys by a hash.
const scrambledOver = 10_000_000_000

// newChooser makes the chooser of a caller. Two callers with the same seed choose
// differently.
func newChooser(choice Choice, theta float64, records, seed, worker uint64) chooser {
	c := chooser{choice: choice, rnd: newRNG(seed, worker)}
	switch choice {
	case Zipfian:
		c.zipf = newZipf(scrambledOver, theta)
	case Latest:
		c.zipf = newZipf(records, theta)
	}
	return c
}

// next chooses one of the keys 0 to n-1; n does not go down from call to call.
func (c *chooser) next(n uint64) uint64 {
	switch c.choice {
	case Zipfian:
		return fnv64(c.zipf.rank(c.rnd.float())) % n
	case Latest:
		if n != c.zipf.n {
			c.zipf.grow(n)
		}
		return n - 1 - c.zipf.rank(c.rnd.float())
	}
	return c.rnd.below(n)
}

// An rng is a small generator of random bits (SplitMix64): one word of state,
// nothing shared, two nanoseconds.
type rng struct{ state uint64 }

// newRNG is the generator of one of many callers.
func newRNG(seed, stream uint64) rng {
	return rng{mix64(mix64(seed) ^ mix64(stream+0x9e3779b97f4a7c15))}
}

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix64(r.state)
}

// below returns 0 to n-1.
func (r *rng) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// float returns 0 up to, but not including, 1.
func (r *rng) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// mix64 maps 64 bits to 64 others, one to one.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fnv64 is YCSB's hash of a number: FNV-1a over its bytes, lowest first, and the
// sign taken off.
func fnv64(v uint64) uint64 {
	h := uint64(0xcbf29ce484222325)
	for range 8 {
		h = (h ^ v&0xff) * 1099511628211
		v >>= 8
	}
	if int64(h) < 0 {
		h = -h
	}
	return h
}

// Draw returns keys for n gets in the distribution of the options, the choices of
// one caller of a run: for a program that has to prepare its requests.
func (o Options) Draw(n int) ([][]byte, error) {
	numbers, err := o.DrawNumbers(n)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	template := o.Keys.template()
	keys := make([][]byte, n)
	room := make([]byte, 0, n*o.Keys.Size)
	for i, number := range numbers {
		from := len(room)
		room = template.append(room, uint64(number))
		keys[i] = room[from:len(room):len(room)]
	}
	return keys, nil
}

// DrawNumbers returns the numbers of the keys that Draw writes out: for a program
// that writes them itself.
func (o Options) DrawNumbers(n int) ([]uint32, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	choose := newChooser(o.Choice, o.Theta, o.Records, o.Seed, 0)
	numbers := make([]uint32, n)
	for i := range numbers {
		numbers[i] = uint32(choose.next(o.Records)) // below MaxRecords, so it fits
	}
	return numbers, nil
}
