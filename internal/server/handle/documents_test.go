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
// session keeps few documents, and the argument of one.
func TestDocumentsAreBounded(t *testing.T) {
	kinds := []wire.DocumentKind{wire.DocumentView, wire.MapPrepare, wire.MapCommit}
	made := 0
	g := newRig(t, func(env *Env) {
		for _, kind := range kinds {
			env.Makers[kind] = func(_ context.Context, _ Asker, _ []byte) ([]byte, error) {
				made++
				return make([]byte, made%4*session.MinReplySize), nil
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
		if n := len(ds.all); n > 0 && rng.IntN(4) >= 1+i/100%3 { // goes on with one that is there, mostly with its proper part
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
		begun, kept := 0, 0
		for _, d := range ds.all {
			if kept += cap(d.argument); d.argument != nil {
				begun++
			}
		}
		if len(ds.all) > MaxDocuments || begun > 1 || kept > cluster.MaxMap {
			t.Fatalf("%d documents are kept, %d of them with arguments that are not whole, %d bytes", len(ds.all), begun, kept)
		}
	}
	if made < 100 || len(answered) != 3 {
		t.Errorf("too little was tried: %d documents, answers %v", made, answered)
	}
	end()
}
