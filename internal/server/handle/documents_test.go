package handle

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestDocumentsAreBounded: whatever parts of documents a client sends, in whatever order, a
// session keeps few documents, and of arguments no more than one may have.
func TestDocumentsAreBounded(t *testing.T) {
	kinds := []wire.DocumentKind{wire.DocumentView, wire.MapPrepare, wire.MapCommit}
	made := 0
	g := newRig(t, func(env *Env) {
		for _, kind := range kinds {
			env.Makers[kind] = func(_ context.Context, _ Asker, argument []byte) ([]byte, error) {
				made++
				return make([]byte, len(argument)%3*session.MinReplySize), nil
			}
		}
	})
	s, q, end := g.open("")
	ds := &s.Conn().(*conn).documents
	rng := rand.New(rand.NewPCG(1, 2))
	answered := map[wire.Status]int{}
	bytesOf := bytes.Repeat([]byte("a"), 4<<10)
	for i := range 3000 {
		m := wire.Document{Kind: kinds[rng.IntN(len(kinds))]}
		ds.mu.Lock()
		if n := len(ds.all); n > 0 && rng.IntN(4) != 0 { // goes on with one of those that there are, and says so, mostly
			d := ds.all[rng.IntN(n)]
			m.Kind, m.Serial = d.kind, d.serial+rng.Uint32N(8)/7
			if d.argument == nil || rng.IntN(8) == 0 {
				m.From = rng.Uint32N(uint32(len(d.text) + 2))
			} else {
				m.Total, m.Offset = uint32(d.total), uint32(len(d.argument))+rng.Uint32N(16)/15
				m.Argument = bytesOf[:min(1+rng.IntN(len(bytesOf)), d.total-len(d.argument))]
				m.Total = max(m.Total, m.Offset+uint32(len(m.Argument)))
			}
		} else if m.Kind != wire.DocumentView {
			m.Total = 1 + rng.Uint32N(3*uint32(len(bytesOf)))
			if rng.IntN(8) == 0 {
				m.Total = cluster.MaxMap + rng.Uint32N(2)
			}
			m.Argument = bytesOf[:min(int(m.Total), 1+rng.IntN(len(bytesOf)))]
		}
		ds.mu.Unlock()
		feed(t, s, q, wire.AppendDocument(nil, uint64(i+2), m))
		switch st := q.Last.Status; {
		case q.Last.Type != wire.TypeDocument.Reply():
			t.Fatalf("%+v is answered with %v", m, q.Last)
		case st != wire.StatusOK && st != wire.StatusBadRequest && st != wire.StatusTooLarge:
			t.Fatalf("%+v: %v", m, st)
		default:
			answered[st]++
		}
		kept := 0
		for _, d := range ds.all {
			kept += cap(d.argument)
		}
		if len(ds.all) > MaxDocuments || kept > cluster.MaxMap {
			t.Fatalf("%d documents are kept, %d bytes of arguments", len(ds.all), kept)
		}
	}
	if made < 100 || len(answered) != 3 {
		t.Errorf("too little was tried: %d documents, answers %v", made, answered)
	}
	end()
}
