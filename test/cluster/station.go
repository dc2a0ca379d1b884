package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Station is clients on one host, that call every node without a pause. It is in
// this process, or in a guest of the lab (Remote).
type Station interface {
	// Well waits until calls to the nodes succeed.
	Well(ctx context.Context, nodes ...string) error
	// Lost waits until calls to the node fail.
	Lost(ctx context.Context, node string) error
	// Tallies are the books of patient calls, by node.
	Tallies(ctx context.Context) (map[string]Tally, error)
	// Finish stops everything and judges it. It is called once.
	Finish(ctx context.Context) (Report, error)
}

// A Report is the result of a station.
type Report struct {
	Lines    []string // what was done
	Problems []string // what must not happen
	Ops      int      // of its load, if it has one
	Refused  int
}

// Deadlines of calls: of patient ones, which succeed unless their node is away for
// longer, and of those that find out soon that it is away.
const (
	PatientLimit = 20 * time.Second
	soonLimit    = 2 * time.Second
)

// Enough calls in a row show that a node answers.
const Enough = 6

// StationOptions say what a station calls.
type StationOptions struct {
	Host string // its name
	Conn *Conn
	Load *Load         // that the station finishes; may be nil
	Pace time.Duration // rest between two calls; default 20 ms
}

// A local station is in this process.
type local struct {
	pairs map[string]pair
	load  *Load
}

// A pair of probes calls one node: a patient one, and one that finds out soon.
type pair struct{ patient, soon *Probe }

// NewStation begins to call, until Finish.
func NewStation(ctx context.Context, o StationOptions) Station {
	s := &local{pairs: map[string]pair{}, load: o.Load}
	if o.Pace == 0 {
		o.Pace = 20 * time.Millisecond
	}
	for _, id := range o.Conn.IDs() {
		start := func(word string, limit time.Duration) *Probe {
			return StartProbe(ctx, ProbeOptions{
				Name: o.Host + " to " + id + ", " + word, Client: o.Conn, Limit: limit, Pace: o.Pace,
				Keys: o.Conn.KeysOf(id, word+" probe of "+o.Host, 4),
			})
		}
		s.pairs[id] = pair{start("patient", PatientLimit), start("soon", soonLimit)}
	}
	return s
}

func (s *local) pair(id string) (pair, error) {
	p, ok := s.pairs[id]
	if !ok {
		return p, fmt.Errorf("nobody calls node %q", id)
	}
	return p, nil
}

func (s *local) Well(ctx context.Context, nodes ...string) error {
	var probes []*Probe
	for _, id := range nodes {
		p, err := s.pair(id)
		if err != nil {
			return err
		}
		probes = append(probes, p.patient, p.soon)
	}
	// Side by side: each takes as long as Enough calls.
	errs := make([]error, len(probes))
	var wg sync.WaitGroup
	for i, p := range probes {
		wg.Go(func() { errs[i] = p.WaitWell(ctx, Enough) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *local) Lost(ctx context.Context, node string) error {
	p, err := s.pair(node)
	if err != nil {
		return err
	}
	return p.soon.WaitFailed(ctx)
}

func (s *local) Tallies(context.Context) (map[string]Tally, error) {
	all := map[string]Tally{}
	for id, p := range s.pairs {
		all[id] = p.patient.Tally()
	}
	return all, nil
}

func (s *local) Finish(ctx context.Context) (Report, error) {
	var r Report
	for _, id := range slices.Sorted(maps.Keys(s.pairs)) {
		for _, p := range []*Probe{s.pairs[id].patient, s.pairs[id].soon} {
			line, problems := p.judge()
			r.Lines = append(r.Lines, line)
			r.Problems = append(r.Problems, problems...)
		}
	}
	if s.load == nil {
		return r, nil
	}
	v, err := s.load.Finish(ctx)
	r.Lines = append(r.Lines, v.String())
	r.Problems = append(r.Problems, v.Wrong...)
	r.Ops, r.Refused = v.Ops, v.Refused
	return r, err
}

// slack is what a call may take beyond its deadline before that counts as one that
// does not end: on a machine with much else to do everything is late.
const slack = 45 * time.Second

// judge stops a probe and looks through its books.
func (p *Probe) judge() (line string, problems []string) {
	sum, wrong := p.Stop()
	for _, text := range wrong {
		problems = append(problems, p.o.Name+": "+text)
	}
	if n := sum.Classes[untyped]; n > 0 {
		problems = append(problems, fmt.Sprintf("%s: %d errors of no class; the last error: %s", p.o.Name, n, sum.Last))
	}
	if sum.Longest > p.o.Limit+slack {
		problems = append(problems, fmt.Sprintf("%s: a call with a deadline of %v took %v", p.o.Name, p.o.Limit, sum.Longest))
	}
	return fmt.Sprintf("%s: %v", p.o.Name, sum), problems
}
