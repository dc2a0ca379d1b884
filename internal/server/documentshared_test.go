package server

import (
	"bytes"
	"encoding/json"
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

// TestStatsOfOwnSpace: a client is told the statistics of the space that its session is in,
// because those of another tell a tenant about the keys of others.
func TestStatsOfOwnSpace(t *testing.T) {
	r := newSpaceRig(t, peerOptions{}, "")
	for _, name := range spaceNames {
		p, err := r.try(t, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := p.document(wire.DocumentStats, nil, 0)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		var st Stats
		if err := json.Unmarshal(text, &st); err != nil {
			t.Fatal(err)
		}
		sp := r.srv.spaces.of(name)
		if st.Space != name || st.Incarnation != sp.Incarnation || (len(st.Spaces) > 0) != (name == "") {
			t.Errorf("%q is told of the space %q with incarnation %x, and of %d others; its own has %x", name, st.Space, st.Incarnation, len(st.Spaces), sp.Incarnation)
		}
	}
}
