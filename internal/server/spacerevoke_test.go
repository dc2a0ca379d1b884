package server

import (
	"flag"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

var revokeRounds = flag.Int("revoke.rounds", 40, "rounds of TestRevokeRace; 100000 for nights")

// TestRevokeRace: once Revoke has returned no READ of that tenant completes,
// however many are on their way, round after round (I26).
func TestRevokeRace(t *testing.T) { revokeRace(t, newSpaceRig(t, peerOptions{}, ""), *revokeRounds) }

// TestLabSpaceRevoke is the same on a device of the kernel's.
func TestLabSpaceRevoke(t *testing.T) {
	if os.Getenv("RDMAKV_LAB") == "" {
		t.Skip("needs an RDMA device: make lab")
	}
	fabric, addr := labFabric(t)
	revokeRace(t, newSpaceRig(t, peerOptions{fabric: fabric, kind: mem.Mmap, receives: 16}, addr), 20)
}

func revokeRace(t *testing.T, r *spaceRig, rounds int) {
	late, reads := 0, 0
	for round := range rounds {
		p := r.dial(t, "anna")
		_, table := p.regions()
		var over atomic.Bool // Revoke has returned
		some, ended := make(chan struct{}), make(chan struct{})
		go func() { // p is this goroutine's until it ends
			defer close(ended)
			for n := 0; ; {
				told := over.Load() // before the post
				if _, err := p.read(table[0].Addr, table[0].RKey, 4096); err != nil {
					return
				}
				if reads++; told {
					late++
					return
				}
				if n++; n == 1+round%8 {
					close(some)
				}
			}
		}()
		select {
		case <-some:
		case <-ended:
			t.Fatalf("round %d: no READs before", round)
		}
		answer, err := r.srv.Revoke("anna")
		over.Store(true)
		if err != nil || answer.Sessions != 1 {
			t.Fatalf("round %d: %+v, %v", round, answer, err)
		}
		<-ended
		if _, err := p.qp.PostSend([]rdma.SendWR{}); err == nil && p.qp.State() == rdma.QPRTS {
			t.Fatalf("round %d: the connection lives", round)
		}
		p.close()
		if _, err := r.srv.Allow("anna"); err != nil {
			t.Fatal(err)
		}
	}
	if late > 0 {
		t.Errorf("%d READs posted after Revoke had returned came back with data", late)
	}
	t.Logf("%d rounds, %d READs before", rounds, reads)
}
