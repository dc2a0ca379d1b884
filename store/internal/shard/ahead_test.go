package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestPublishAll publishes the same random writes of few keys as commits of many sizes and one
// by one: all that can be asked of both shards is the same, whatever was asked for ahead.
func TestPublishAll(t *testing.T) {
	const keys, seed = 300, 11
	one, all := newRig(t, true), newRig(t, true)
	random := rand.New(rand.NewPCG(seed, seed))
	key := func() []byte { return fmt.Appendf(nil, "key-%d", random.IntN(keys)) }
	op := func() base.Op {
		switch random.IntN(6) {
		case 0:
			return base.Op{Key: key(), Kind: base.OpDelete}
		case 1:
			return base.Op{Key: key(), Value: []byte("c"), If: base.CondAbsent}
		case 2:
			a := random.IntN(keys)
			return base.Op{Kind: base.OpBatch, Parts: []base.Part{
				{Key: fmt.Appendf(nil, "key-%d", a), Value: []byte("p")},
				{Key: fmt.Appendf(nil, "key-%d", (a+1)%keys), Delete: true},
			}}
		}
		return base.Op{Key: key(), Value: make([]byte, random.IntN(300))}
	}
	at := log.Position(0)
	for range 200 {
		var commit []*flight.Flight
		var ones []*flight.Flight
		for range 1 + random.IntN(2*aheadMost+2) {
			o := op()
			at++
			for _, r := range []*rig{one, all} {
				f := r.order(o)
				f.At = at
				if r == all {
					commit = append(commit, f)
				} else {
					ones = append(ones, f)
				}
			}
		}
		for _, f := range ones {
			one.Publish(f, one.results)
		}
		PublishAll([]*Shard{all.Shard}, commit, all.results)
		if a, b := one.Marks(), all.Marks(); a != b || b.Flying != 0 {
			t.Fatalf("seed %d: %+v one by one, %+v together", seed, a, b)
		}
	}
	for k := range keys {
		name := fmt.Sprintf("key-%d", k)
		h := one.hash(name)
		a, found := one.Resident(h, []byte(name))
		b, again := all.Resident(h, []byte(name))
		if found != again || a.Version != b.Version || found && string(a.InPlace()) != string(b.InPlace()) {
			t.Errorf("%s: %v %v one by one, %v %v together", name, found, a.Version, again, b.Version)
		}
		x, dirty := one.Dirty.Find(h, []byte(name))
		y, too := all.Dirty.Find(h, []byte(name))
		if dirty != too || x != y {
			t.Errorf("%s: %+v one by one, %+v together", name, x, y)
		}
	}
}
