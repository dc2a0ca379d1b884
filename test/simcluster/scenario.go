package simcluster

import (
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/rdma/sim"
)

// A Scenario is what a run is about. Everything else the seed decides.
type Scenario struct {
	Name      string
	Adversity sim.Adversity
	Ops       int // of the workers, together
	Workers   int
	Objects   int           // keys, or batches of keys, in use at a time
	Sizes     []int         // of values; default: up to 1,000 bytes
	Large     bool          // values are as large as one entry of the small log takes, so there are no batches; a scan may leave them out, so there is none
	Groups    int           // of the shards
	Replicas  int           // of each key; 0: 3 or 5, by the seed
	Disk      time.Duration // bounds what a sync takes
	Pace      time.Duration // up to so long a worker rests after each operation
	Calm      bool          // nothing goes wrong: most gets have to be by READ
	Every     time.Duration // up to so long it takes from one fault to the next; 0: there are none
	Brief     bool          // cuts and pauses take a sixth of the time that they take elsewhere
	Skew      time.Duration // by up to so much the wall clocks of nodes are wrong
	Founders  int           // so many nodes make the cluster, and an operator has nodes come and go; 0: all, and nobody does
	Churn     bool          // much is written beside, so that the log lets entries go and snapshots are needed
	Faults    []Fault       // what there is to choose from; one that stands twice is chosen twice as often
}

// A Fault is one thing that is done to a world. It ends by itself, and undoes what it has done, unless done is closed before.
type Fault func(w *World, n *Node, rng *rand.Rand, done <-chan struct{}) error

// most is what a cut or a pause takes at most.
func (sc *Scenario) most(usual time.Duration) time.Duration {
	if sc.Brief {
		return usual / 6
	}
	return usual
}

// skew is by how many nanoseconds a wall clock is wrong.
func (sc *Scenario) skew(rng *rand.Rand) int64 { return rng.Int64N(int64(2*sc.Skew)) - int64(sc.Skew) }

// slow is adversity without losses.
func slow() sim.Adversity {
	a := sim.Storm()
	a.Lose, a.Setup = 0, 0
	return a
}

// quick is adversity in which nothing is late: no lease runs out.
func quick() sim.Adversity {
	return sim.Adversity{Delay: 2 * time.Millisecond, Torn: 0.6, ReuseKeys: true}
}

// faulty loses connections often enough that a short run sees several.
func faulty() sim.Adversity {
	a := sim.Storm()
	a.Lose = 0.001
	return a
}

// Scenarios is all of them.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "calm", Adversity: quick(), Ops: 300, Workers: 4, Objects: 3, Groups: 2, Pace: 20 * time.Millisecond, Calm: true},
		{Name: "kill", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 200 * time.Millisecond, Disk: 5 * time.Millisecond,
			Every: 4 * time.Second, Faults: []Fault{kill}},
		{Name: "stop", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 100 * time.Millisecond,
			Every: 3 * time.Second, Faults: []Fault{stop, stop, kill}},
		{Name: "pause", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 100 * time.Millisecond,
			Every: 2 * time.Second, Faults: []Fault{pause}},
		{Name: "cut", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 100 * time.Millisecond,
			Every: 2 * time.Second, Faults: []Fault{cutOff, cutWay, cutWay, cutClient}},
		{Name: "disk", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 100 * time.Millisecond, Disk: 30 * time.Millisecond,
			Every: 2 * time.Second, Faults: []Fault{hang, hang, kill}},
		{Name: "flap", Adversity: slow(), Ops: 700, Workers: 8, Objects: 1, Groups: 1, Pace: 60 * time.Millisecond,
			Every: 400 * time.Millisecond, Brief: true, Faults: []Fault{transfer, transfer, transfer, pause, cutWay, cutOff}},
		{Name: "eclipse", Adversity: quick(), Ops: 900, Workers: 10, Objects: 1, Groups: 1, Pace: 100 * time.Millisecond,
			Every: 300 * time.Millisecond, Faults: []Fault{eclipse}},
		{Name: "usurp", Adversity: slow(), Ops: 500, Workers: 8, Objects: 1, Groups: 2, Pace: 100 * time.Millisecond,
			Every: 2 * time.Second, Faults: []Fault{usurp}},
		{Name: "clocks", Adversity: slow(), Ops: 300, Workers: 5, Objects: 4, Groups: 2, Pace: 100 * time.Millisecond, Skew: time.Second,
			Every: 2 * time.Second, Faults: []Fault{setClock, setClock, stop, pause}},
		{Name: "blackout", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 200 * time.Millisecond, Disk: 5 * time.Millisecond,
			Every: 5 * time.Second, Faults: []Fault{blackout, kill}},
		// Without Disk: at a change of segments the log waits for syncs under a mutex.
		{Name: "snapshot", Adversity: slow(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 200 * time.Millisecond, Churn: true,
			Every: 4 * time.Second, Faults: []Fault{longCut, longCut, kill, stop}},
		{Name: "large", Adversity: slow(), Ops: 250, Workers: 5, Objects: 2, Groups: 2, Pace: 100 * time.Millisecond, Sizes: []int{16, 2000, 9000, 70_000, 150_000}, Large: true,
			Every: time.Second, Brief: true, Faults: []Fault{kill, pause, cutOff, cutClient, transfer}},
		{Name: "live", Adversity: slow(), Ops: 500, Workers: 4, Objects: 2, Groups: 2, Replicas: 3, Founders: 3, Pace: 600 * time.Millisecond},
		{Name: "live-faults", Adversity: slow(), Ops: 500, Workers: 4, Objects: 2, Groups: 2, Replicas: 3, Founders: 3, Pace: 600 * time.Millisecond, Disk: 5 * time.Millisecond,
			Every: 6 * time.Second, Faults: []Fault{kill, kill, stop, pause, cutOff, cutWay, hang, transfer}},
		{Name: "everything", Adversity: faulty(), Ops: 300, Workers: 5, Objects: 2, Groups: 2, Pace: 150 * time.Millisecond, Disk: 5 * time.Millisecond,
			Every: 2 * time.Second, Faults: []Fault{kill, kill, stop, pause, pause, cutOff, cutWay, cutClient, hang, lose}},
	}
}
