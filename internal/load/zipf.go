package load

import "math"

// A zipf turns uniform numbers into ranks: rank k, from 0, comes in proportion to
// 1/(k+1)^theta. It is the method of Gray et al. ("Quickly generating
// billion-record synthetic databases", SIGMOD 1994), which YCSB uses too: exact
// for the first two ranks, and near the law for the others. Unlike math/rand's it
// takes a theta below 1.
type zipf struct {
	n       uint64
	theta   float64
	zetan   float64 // sum of 1/k^theta for k from 1 to n
	half    float64 // bounds of the first two ranks
	alpha   float64
	power   int // alpha, if it is a small whole number, else 0
	eta     float64
	offset  float64 // of zeta, see zetaFrom
	scale   float64 // n as a number
	maxRank uint64
}

// newZipf makes a choice among n ranks, which can grow.
func newZipf(n uint64, theta float64) zipf {
	z := zipf{theta: theta, alpha: 1 / (1 - theta), offset: zetaOffset(theta)}
	if whole := math.Round(z.alpha); math.Abs(z.alpha-whole) < 1e-9*whole && whole <= 1<<10 {
		z.power = int(whole)
	}
	z.half = 1 + math.Pow(0.5, theta)
	z.grow(n)
	return z
}

// grow makes it one for n ranks.
func (z *zipf) grow(n uint64) {
	z.n, z.scale, z.maxRank = n, float64(n), n-1
	z.zetan = z.zetaOf(n)
	z.eta = (1 - math.Pow(2/float64(n), 1-z.theta)) / (1 - z.half/z.zetan)
}

// rank turns u, from 0 up to 1, into a rank.
func (z *zipf) rank(u float64) uint64 {
	uz := u * z.zetan
	switch {
	case uz < 1:
		return 0
	case uz < z.half:
		return min(1, z.maxRank)
	}
	return min(uint64(z.scale*z.raise(z.eta*u-z.eta+1)), z.maxRank)
}

// raise is x to the power of alpha. For the usual theta of 0.99 that is 100, and
// squaring takes a fifth of the time of math.Pow.
func (z *zipf) raise(x float64) float64 {
	if z.power == 0 {
		return math.Pow(x, z.alpha)
	}
	y := 1.0
	for p := z.power; p != 0; p >>= 1 {
		if p&1 != 0 {
			y *= x
		}
		x *= x
	}
	return y
}

// zetaSum is up to where the sum of zeta is added up term by term.
const zetaSum = 1000

// zetaTail approximates the sum of 1/k^theta up to n, without a constant, by the
// formula of Euler and Maclaurin; from 1,000 on it is off by less than 1e-15.
func zetaTail(n, theta float64) float64 {
	p := math.Pow(n, -theta)
	return n*p/(1-theta) + p/2 - theta*p/n/12 + theta*(theta+1)*(theta+2)*p/(n*n*n)/720
}

// zetaOffset is that constant.
func zetaOffset(theta float64) float64 { return zetaOfSum(zetaSum, theta) - zetaTail(zetaSum, theta) }

func zetaOfSum(n uint64, theta float64) (sum float64) {
	for k := n; k > 0; k-- { // the small ones first
		sum += math.Pow(float64(k), -theta)
	}
	return sum
}

func (z *zipf) zetaOf(n uint64) float64 {
	if n <= zetaSum {
		return zetaOfSum(n, z.theta)
	}
	return z.offset + zetaTail(float64(n), z.theta)
}
