package server

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestMapTextIsShared: a session keeps the documents that it has not read, and any
// tenant may ask for the map in as many sessions as it has. They all keep one text.
func TestMapTextIsShared(t *testing.T) {
	srv := startServer(t, clusterOf("a"))
	m := propose(t, 1, srv)
	mustChange(t, wire.MapPrepare, m, srv)
	for _, kind := range []wire.DocumentKind{wire.DocumentPromise, wire.DocumentMap} {
		if kind == wire.DocumentMap {
			mustChange(t, wire.MapCommit, m, srv)
		}
		var texts [2][]byte
		for i := range texts {
			var err error
			if texts[i], err = srv.makers[kind](t.Context(), handle.Asker{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(texts[0], cluster.AppendMap(nil, m)) {
			t.Errorf("%v: another text", kind)
		}
		if &texts[0][0] != &texts[1][0] {
			t.Errorf("%v: a text for each that asks", kind)
		}
	}
}
