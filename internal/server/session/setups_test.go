package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]Source{
		"127.0.0.1:5":              {"127.0.0.1", "127.0.0.0/24"},
		"10.1.2.3:40000":           {"10.1.2.3", "10.1.2.0/24"},
		"[::ffff:10.1.2.3]:40000":  {"10.1.2.3", "10.1.2.0/24"},
		"[2001:db8:1:2::7]:9":      {"2001:db8:1:2::/64", "2001:db8:1::/48"},
		"[2001:db8:1:2:f::1]:9":    {"2001:db8:1:2::/64", "2001:db8:1::/48"},
		"[fe80::1%eth0]:9":         {"fe80::1%eth0", "fe80::1%eth0"},
		"[::1]:9":                  {"::1", "::1"},
		"kv1.example:7400":         {"kv1.example", "kv1.example"},
		"no address of this shape": {"no address of this shape", "no address of this shape"},
	} {
		if got := SourceOf(addr); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// fakeSetups are places whose clock is the test's.
func fakeSetups(limit, perHost int) (*setups, *time.Time) {
	now := time.Unix(0, 0)
	t := newSetups(limit, perHost, setupGrace)
	t.now = func() time.Time { return now }
	return &t, &now
}

// TestSetupPlaces: who gets a place when there is none, and whose.
func TestSetupPlaces(t *testing.T) {
	const room = 1 << 20
	a1, a2, b := Source{"a1", "a"}, Source{"a2", "a"}, Source{"b1", "b"}
	times := func(src Source, n int) (list []Source) {
		for range n {
			list = append(list, src)
		}
		return list
	}
	join := func(lists ...[]Source) (all []Source) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for name, c := range map[string]struct {
		there   []Source
		age     time.Duration
		room    int
		new     Source
		victim  int // of there; -1: the newcomer is refused; -2: nobody goes
		reached string
	}{
		"room":                        {times(a1, 3), 0, room, b, -2, "[]"},
		"of the fullest net":          {join(times(b, 1), times(a1, 3)), 0, room, Source{"c1", "c"}, 1, "[setups]"},
		"of its fullest host":         {join(times(a2, 1), times(a1, 3)), 0, room, Source{"c1", "c"}, 1, "[setups]"},
		"of the fullest host, net":    {join(times(a1, 3), times(a2, 1)), 0, room, Source{"a3", "a"}, 0, "[setups]"},
		"own net, young, as full":     {join(times(a1, 2), times(a2, 2)), setupGrace / 2, room, a2, -1, "[setups]"},
		"own net, old, as full":       {join(times(a1, 2), times(a2, 2)), setupGrace, room, a2, 2, "[setups]"},
		"of another, not fairer":      {join(times(a1, 2), times(b, 2)), 0, room, b, -1, "[setups]"},
		"host's bound, young":         {times(a1, 3), 0, room, a1, -1, "[host_setups]"},
		"host's bound, old":           {times(a1, 3), setupGrace, room, a1, 0, "[host_setups]"},
		"one each, young":             {[]Source{{"1", "1"}, {"2", "2"}, {"3", "3"}, {"4", "4"}}, 0, room, b, -1, "[setups]"},
		"sessions' bound, none there": {nil, 0, 0, b, -1, "[sessions]"},
		"sessions' bound, some there": {times(a1, 2), 0, 2, b, 0, "[sessions]"},
	} {
		t.Run(name, func(t *testing.T) {
			set, now := fakeSetups(4, 3)
			var there []*Place
			for _, src := range c.there {
				p, _ := set.take(src, room)
				if p == nil {
					t.Fatal("no place")
				}
				there = append(there, p)
			}
			*now = now.Add(c.age)
			p, reached := set.take(c.new, c.room)
			if fmt.Sprint(reached) != c.reached || (p == nil) != (c.victim == -1) {
				t.Errorf("got %v, bounds reached %v", p, reached)
			}
			for i, o := range there {
				if lost := o.lost.Err() != nil; lost != (i == c.victim) || lost == o.held {
					t.Errorf("place %d: lost %v, held %v", i, lost, o.held)
				}
			}
			for _, o := range append(there, p) {
				if o != nil {
					set.cleared(o)
				}
			}
			if len(set.places)+len(set.hosts)+len(set.nonces)+set.ending != 0 {
				t.Errorf("left behind: %+v", set)
			}
		})
	}
}

// TestSetupsOfManyAttackers: 128 connections a second from each of many addresses
// which say a right request and nothing more. An honest client that needs 20 ms for
// its set-up always comes through at once, from an address of its own, in the same
// net or not; from an attacker's address, when it has come a few times.
func TestSetupsOfManyAttackers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, attackers := range []int{1, 2, 4, 40} {
		set, now := fakeSetups(128, 64)
		var open []*Place
		attack := func(d time.Duration) {
			for n := int(d * 128 * time.Duration(attackers) / time.Second); n > 0; n-- {
				*now = now.Add(time.Second / time.Duration(128*attackers))
				host := fmt.Sprintf("10.0.0.%d:1", 1+r.IntN(attackers))
				if p, _ := set.take(SourceOf(host), 4096); p != nil {
					open = append(open, p)
				}
				// What lost its place is cleared up; what has it for 5 s, too.
				open = slices.DeleteFunc(open, func(p *Place) bool {
					over := !p.held || now.Sub(p.since) > 5*time.Second
					if over {
						set.cleared(p)
					}
					return over
				})
				if set.ending > 128 || len(set.places) > 128 {
					t.Fatalf("%d places, %d ending", len(set.places), set.ending)
				}
			}
		}
		attack(6 * time.Second)
		for _, honest := range []string{"10.0.0.200:5", "10.9.9.9:5", "10.0.0.1:5"} {
			worst := 0
			for range 50 {
				tries := 0
				for done := false; !done; tries++ {
					p, _ := set.take(SourceOf(honest), 4096)
					attack(20 * time.Millisecond)
					if p == nil {
						continue
					}
					done = p.held
					set.cleared(p)
				}
				worst = max(worst, tries)
				attack(10 * time.Millisecond)
			}
			if own := honest != "10.0.0.1:5"; own && worst > 1 || worst > 100 {
				t.Errorf("%d attackers, a client at %s: %d tries", attackers, honest, worst)
			}
		}
	}
}

// TestReplayedSetup: a copy of a request that is being set up gets no second
// place; the nonce is free again with the first's.
func TestReplayedSetup(t *testing.T) {
	set, _ := fakeSetups(8, 8)
	take := func() *Place {
		p, _ := set.take(Source{"a", "a"}, 100)
		return p
	}
	p, q := take(), take()
	nonce := wire.Nonce{1}
	if !set.claim(p, nonce) || set.claim(q, nonce) {
		t.Error("the copy was taken, or the original was not")
	}
	set.cleared(q)
	if set.claim(take(), nonce) {
		t.Error("the copy was taken when another had been refused")
	}
	set.cleared(p)
	if !set.claim(take(), nonce) {
		t.Error("the nonce is still held")
	}
}
