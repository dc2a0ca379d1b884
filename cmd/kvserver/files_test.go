package main

import "testing"

// TestPlanFiles: whatever the limit, the parts of the plan and what is reserved fit
// into it, and nothing is left without. Of a limit that is too low it says one that
// is not.
func TestPlanFiles(t *testing.T) {
	for _, gossip := range []bool{false, true} {
		for _, spaces := range []int{0, 1, 64} {
			reserve := fileReserve + spaces*spaceReserve
			if gossip {
				reserve += gossipReserve
			}
			_, need, ok := planFiles(100, gossip, spaces)
			if ok || need < reserve || need > 1024+200*spaces {
				t.Errorf("gossip %v, %d spaces: 100 will do (%v), or %d", gossip, spaces, ok, need)
			}
			for _, limit := range []int{need, need + 1, 2 * need, 20_000, 1 << 20, 1<<31 - 1} {
				p, _, ok := planFiles(limit, gossip, spaces)
				if !ok || p.Limit != limit || p.Store < 64 || p.SpaceStore < 64 || p.Pending < 16 || p.Sessions < 64 {
					t.Errorf("gossip %v, %d spaces, limit %d: %+v, %v", gossip, spaces, limit, p, ok)
				}
				if sum := reserve + p.Store + spaces*p.SpaceStore + 3*p.Pending + p.Sessions; sum > limit {
					t.Errorf("gossip %v, %d spaces: %d of %d are planned: %+v", gossip, spaces, sum, limit, p)
				}
			}
		}
	}
	if p, _, _ := planFiles(20_000, true, 2); p.Store != 4096 || p.SpaceStore != 256 || p.Pending != 1024 || p.Sessions < 4096 {
		t.Errorf("20,000 files do not hold the defaults: %+v", p)
	}
	if p, _, _ := planFiles(1024, false, 0); p.Sessions < 256 {
		t.Errorf("1024 files: %+v", p)
	}
}
