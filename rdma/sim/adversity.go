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
	// different times or steps, else all at one instant. Half of the torn ones
	// are cut into words, half into lines of 64 bytes.
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
// conformance suite passes, only not in the order it may expect.
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
