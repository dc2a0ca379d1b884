package handle

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestRows: every type of request has a row that says which right it needs and
// which keys it names.
func TestRows(t *testing.T) {
	for typ := range wire.MaxRequest + 1 {
		row := &requests[typ]
		switch {
		case !typ.IsRequest() || typ == wire.TypeHello: // the session's own
			if row.run != nil {
				t.Errorf("%v is served", typ)
			}
		case row.run == nil || row.keys == unsaid:
			t.Errorf("%v has no row", typ)
		case (row.right == mayNothing) != (typ == wire.TypePing) || row.where == inSession:
			t.Errorf("%v needs no right, or runs nowhere", typ)
		}
	}
}

// TestDocumentKinds: every kind of document has a row that says which right it needs and
// where it is made.
func TestDocumentKinds(t *testing.T) {
	said := map[wire.DocumentKind]bool{}
	for k := range wire.DocumentKinds() {
		said[k] = true
	}
	for k := range documentKinds {
		kind := &documentKinds[k]
		switch k := wire.DocumentKind(k); {
		case !said[k]:
			if kind.run != nil {
				t.Errorf("%v is served, and has no name", k)
			}
		case kind.run == nil || kind.right == mayNothing || kind.where < onScans || kind.keys != noKeys:
			t.Errorf("%v has no row", k)
		case kind.argument > 0 && kind.right != mayAdminister || kind.argument > cluster.MaxMap:
			t.Errorf("%v takes an argument of %d bytes", k, kind.argument)
		}
	}
}
