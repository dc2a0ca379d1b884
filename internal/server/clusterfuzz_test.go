package server

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

var clusterSeed = flag.Int64("clusterseed", 0, "seed of TestHostileMaps; 0: a new one")

// TestHostileMaps: an administrator that sends parts of maps in any order, of any
// size, damaged or not, gets answers, changes nothing that is in force, and the
// node goes on.
func TestHostileMaps(t *testing.T) {
	seed := uint64(*clusterSeed)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./internal/server -run TestHostileMaps -clusterseed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	srv := startServer(t, clusterOf("a"))
	m := birth(t, srv)
	good := cluster.AppendMap(nil, m)
	p := dial(t, srv, peerOptions{})
	answered := map[wire.Status]int{}
	for range 400 {
		text := append([]byte(nil), good...)
		for range rng.IntN(3) {
			text[rng.IntN(len(text))] ^= 1 << rng.IntN(8)
		}
		off := 0
		if rng.IntN(3) == 0 {
			off = rng.IntN(len(text))
		}
		end := off + 1 + rng.IntN(len(text)-off)
		if rng.IntN(2) == 0 {
			end = len(text)
		}
		total := uint32(len(text))
		if rng.IntN(8) == 0 {
			total = max(uint32(end), rng.Uint32())
		}
		_, err := p.call(func(id uint64) []byte {
			return wire.AppendMapChange(nil, id, wire.MapChange{Step: wire.MapStep(1 + rng.IntN(3)), Total: total, Offset: uint32(off), Data: text[off:end]})
		})
		switch st := wire.StatusOf(err); st {
		case wire.StatusOK, wire.StatusBadRequest, wire.StatusTooLarge:
			answered[st]++
		default:
			t.Fatalf("%v", err)
		}
		what, at := wire.ClusterWhat(rng.IntN(3)), rng.Uint32N(300)
		if _, err := p.call(func(id uint64) []byte {
			return wire.AppendClusterRequest(nil, id, wire.ClusterRequest{What: what, Offset: at})
		}); err != nil && wire.StatusOf(err) != wire.StatusBadRequest && wire.StatusOf(err) != wire.StatusNoMap {
			t.Fatal(err)
		}
		if len(p.sessionParts(srv)) > cluster.MaxMap {
			t.Fatal("parts are kept beyond the largest map")
		}
	}
	if state, digest := srv.cluster.mapState(); state != wire.MapCommitted || digest != m.Digest() || !srv.Ready() {
		t.Errorf("the node has a map %v %x", state, digest)
	}
	if len(answered) < 3 {
		t.Errorf("too little was tried: %v", answered)
	}
}

// sessionParts is what the node keeps of maps of this session.
func (p *peer) sessionParts(srv *Server) []byte {
	for _, s := range srv.sessionList() {
		if s.id == p.wel.Session {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.mapParts
		}
	}
	return nil
}
