package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/test/linear"
)

// A drill is a cluster with stations that call it, in which one thing after the
// other goes wrong.
type drill struct {
	*Rig
	t        *testing.T
	name     string // of the run
	net      faulty
	stations map[string]Station
	at       map[string]string // place of each station
	places   map[string]Place  // of nodes and stations, by name
	replicas bool              // a node may be away, and no call is refused for it
}

// faulty is what can happen to the links of a drill. hosts.Net has the words.
type faulty interface {
	Cut(a, b string, ports ...uint16) error
	CutOneWay(from, to string, ports ...uint16) error
	Delay(a, b string, d time.Duration) error
	Lose(a, b string, probability float64) error
	Heal() error
}

// clientHosts are the hosts of clients.
var clientHosts = []string{"east", "west"}

// newDrill is a drill on hosts of this machine: a station on each client host, and
// a load whose clients are on both.
func newDrill(w *world) *drill {
	w.t.Helper()
	d := &drill{Rig: w.Rig, t: w.t, name: "cluster-" + w.net.Kind(), net: w.net, stations: map[string]Station{}, at: map[string]string{}, places: map[string]Place{}}
	for _, name := range names {
		d.places[name] = w.net.Host(name)
	}
	var stores []linear.Store
	for _, host := range clientHosts {
		stores = append(stores, w.dial(host).Store(), w.dial(host, func(o *ConnOptions) { o.NoCache = true }).Store())
	}
	load := StartLoad(w.t.Context(), LoadOptions{
		Name: d.name, Seed: *seedFlag, Stores: stores, Dir: outDir(), Pace: 20 * time.Millisecond,
	})
	for _, host := range clientHosts {
		d.at[host] = host
		d.stations[host] = NewStation(w.t.Context(), StationOptions{Host: host, Conn: w.dial(host), Load: load})
		load = nil // finished by one
	}
	d.allWell(w.t, "before anything goes wrong")
	return d
}

// allWell waits until every station reaches every node.
func (d *drill) allWell(t *testing.T, when string) {
	t.Helper()
	for host := range d.stations {
		d.well(t, when, host, "n1", "n2", "n3")
	}
}

// well waits until a station reaches some nodes.
func (d *drill) well(t *testing.T, when, host string, ids ...string) {
	t.Helper()
	if err := d.stations[host].Well(within(t), ids...); err != nil {
		t.Fatalf("%s: %s: %v", when, host, err)
	}
}

// lost waits until calls of a station to a node fail.
func (d *drill) lost(t *testing.T, when, host, id string) {
	t.Helper()
	if err := d.stations[host].Lost(within(t), id); err != nil {
		t.Fatalf("%s: %s: %v", when, host, err)
	}
}

// unharmed checks that during f, and until what began in it has ended, no patient
// call from a station to a node has failed, of those that are listed.
func (d *drill) unharmed(t *testing.T, listed map[string][]string, f func()) {
	t.Helper()
	before := map[string]map[string]Tally{}
	for host := range listed {
		before[host] = d.tallies(t, host)
	}
	f()
	for host, ids := range listed {
		d.well(t, "during the fault", host, ids...)
		after := d.tallies(t, host)
		for _, id := range ids {
			was, now := before[host][id], after[id]
			if now.Failed != was.Failed || now.Calls == was.Calls {
				t.Errorf("%s to %s must not be touched by it: %d calls, %d failed; the last error: %s",
					host, id, now.Calls-was.Calls, now.Failed-was.Failed, now.Last)
			}
		}
	}
}

func (d *drill) tallies(t *testing.T, host string) map[string]Tally {
	t.Helper()
	all, err := d.stations[host].Tallies(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// both lists the same nodes for all stations.
func (d *drill) both(ids ...string) map[string][]string {
	all := map[string][]string{}
	for host := range d.stations {
		all[host] = ids
	}
	return all
}

// run runs a drill's part, unless an earlier one has failed: what comes after it
// tells nothing.
func (d *drill) run(name string, f func(t *testing.T)) {
	if d.t.Failed() {
		return
	}
	d.t.Run(name, func(t *testing.T) {
		start := time.Now()
		f(t)
		t.Logf("it took %v", time.Since(start).Round(time.Millisecond))
	})
}

// end stops everything and judges it.
func (d *drill) end() {
	d.t.Helper()
	ops, refused, wrong := 0, 0, 0
	for _, host := range slices.Sorted(maps.Keys(d.stations)) {
		r, err := d.stations[host].Finish(within(d.t))
		if err != nil {
			d.t.Errorf("%s: %v", host, err)
		}
		for _, line := range r.Lines {
			d.t.Log(line)
		}
		for _, p := range r.Problems {
			d.t.Errorf("seed %d: %s", *seedFlag, p)
		}
		ops, refused, wrong = ops+r.Ops, refused+r.Refused, wrong+len(r.Problems)
	}
	if ops < 500 || refused == 0 && !d.replicas {
		d.t.Errorf("the load did too little: %d operations, %d refused", ops, refused)
	}
	fmt.Printf("linear %s: ops=%d refused=%d wrong=%d\n", d.name, ops, refused, wrong)
}
