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
		// Mostly what the node wants next.
		kind, total := wire.MapPrepare+wire.DocumentKind(rng.IntN(3)), uint32(len(text))
		if rng.IntN(8) == 0 {
			total = max(total, rng.Uint32())
		}
		m := wire.Document{Kind: kind, Total: total, Argument: text}
		if rng.IntN(2) == 0 {
			m.Argument = text[:1+rng.IntN(len(text))]
		}
		reply, err := p.tell(m, answered)
		for err == nil && reply.Wants {
			m.Serial, m.Offset = reply.Serial, m.Offset+uint32(len(m.Argument))
			if rng.IntN(3) == 0 {
				m.Offset = 1 + rng.Uint32N(uint32(len(text)))
			}
			if m.Argument = text[min(int(m.Offset), len(text)):]; len(m.Argument) == 0 || rng.IntN(3) == 0 {
				m = wire.Document{Kind: kind, Serial: reply.Serial - rng.Uint32N(2), From: rng.Uint32N(300)}
			}
			reply, err = p.tell(m, answered)
		}
		kind = wire.DocumentView + wire.DocumentKind(rng.IntN(3))
		if reply, err = p.tell(wire.Document{Kind: kind}, answered); err == nil {
			_, _ = p.tell(wire.Document{Kind: kind, Serial: reply.Serial + rng.Uint32N(2), From: rng.Uint32N(300)}, answered)
		}
	}
	if state, digest := srv.member.MapState(); state != wire.MapCommitted || digest != m.Digest() || !srv.Ready() {
		t.Errorf("the node has a map %v %x", state, digest)
	}
	if len(answered) < 3 {
		t.Errorf("too little was tried: %v", answered)
	}
}

// tell sends one message of a document, which is answered in one of the ways that it may be.
func (p *peer) tell(m wire.Document, answered map[wire.Status]int) (reply wire.DocumentReply, err error) {
	if m.Serial != 0 && len(m.Argument) > 0 && m.Offset == 0 {
		m.Offset = 1
	}
	if m.Serial == 0 {
		m.Offset, m.From = 0, 0
	}
	m.Total = max(m.Total, m.Offset+uint32(len(m.Argument)))
	if len(m.Argument) == 0 {
		m.Total = 0
	}
	body, err := p.call(func(id uint64) []byte { return wire.AppendDocument(nil, id, m) })
	switch st := wire.StatusOf(err); st {
	case wire.StatusOK, wire.StatusBadRequest, wire.StatusTooLarge, wire.StatusNoMap:
		answered[st]++
	default:
		p.t.Fatalf("%+v: %v", m, err)
	}
	if err == nil {
		reply, err = wire.ParseDocumentReply(body)
	}
	return reply, err
}
