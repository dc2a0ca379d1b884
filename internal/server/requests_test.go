package server

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
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

// TestMakers: a node makes every kind of document, and no other.
func TestMakers(t *testing.T) {
	said := map[wire.DocumentKind]bool{}
	for k := range wire.DocumentKinds() {
		said[k] = true
	}
	for k, maker := range newMakers(&Server{}) {
		if k := wire.DocumentKind(k); (maker != nil) != said[k] {
			t.Errorf("%v: is made %v, is a kind %v", k, maker != nil, said[k])
		}
	}
}

// A rowWorld is a node of a cluster that owns every shard, with tenants who lack one
// right each.
type rowWorld struct {
	t     *testing.T
	srv   *Server
	bases []*hostileBase
}

func newRowWorld(t *testing.T, mapped bool) *rowWorld {
	srv := startServer(t, func(c *Config) {
		clusterOf("a")(c)
		c.Secret = secretOf("")
		c.Tenants = []Tenant{
			{Name: "reader", Secret: secret.New(secretOf("reader")), Space: auth.MainSpace, ReadOnly: true},
			{Name: "other", Secret: secret.New(secretOf("other")), Prefix: "other/"},
		}
	})
	m := propose(t, 1, srv)
	if mapped {
		p := dial(t, srv, as(""))
		for _, step := range []wire.DocumentKind{wire.MapPrepare, wire.MapCommit} {
			if _, err := p.change(step, m); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.call(func(id uint64) []byte {
			return wire.AppendPut(nil, id, wire.Put{Key: holdKey, Value: make([]byte, 15_000)})
		}); err != nil {
			t.Fatal(err)
		}
		p.close()
	}
	return &rowWorld{t, srv, hostileBases(srv.main, srv.logins.Find(wire.Tenant{}), cluster.AppendMap(nil, m))}
}

// ask sends a base as a tenant and returns what it is answered. Another session of
// the tenant holds the place number 1.
func (w *rowWorld) ask(tenant string, b *hostileBase) wire.Status {
	by := w.srv.logins.Find(wire.TenantOf(tenant))
	if b.hold {
		s, q := deafSessionOf(w.t, w.srv.main, by, true)
		feed(w.t, s, q, wire.AppendGet(nil, 1, wire.Get{Key: holdKey}))
		defer endDeaf(w.t, s, q)
	}
	s, q := deafSessionOf(w.t, w.srv.main, by, true)
	defer endDeaf(w.t, s, q)
	q.Serve = b.serve
	msg := b.encode()
	feed(w.t, s, q, msg)
	// A value that cannot be READ has ended the session.
	if want := wire.Type(msg[1]).Reply(); q.Last.Type != want && !s.Ended() {
		w.t.Errorf("%s of tenant %q: %v, want %v", b.name, tenant, q.Last, want)
	}
	return q.Last.Status
}

// each calls f for every proper message that a session with a login may send, with the
// row of its type, and checks that every row with keys was among them.
func (w *rowWorld) each(f func(b *hostileBase, row *row)) {
	seen := map[wire.Type]bool{}
	for _, b := range w.bases {
		typ := wire.Type(b.encode()[1])
		if row := rowOf(typ, wire.Body(b.encode())); row.where != inSession {
			f(b, row)
			seen[typ] = true
		}
	}
	for typ := range requests {
		if row := &requests[typ]; row.run != nil && row.where != inSession && !seen[wire.Type(typ)] {
			w.t.Errorf("no message of type %v", wire.Type(typ))
		}
	}
}

// TestRowsRights: what a tenant may not do, or to keys that he may not name, is denied;
// all else is not.
func TestRowsRights(t *testing.T) {
	w := newRowWorld(t, true)
	w.each(func(b *hostileBase, row *row) {
		for _, tenant := range []string{"", "reader", "other"} {
			by := w.srv.logins.Find(wire.TenantOf(tenant))
			denied := row.right == mayWrite && !by.MayWrite || row.right == mayAdminister && !by.Admin || row.right == mayReadAll && tenant == "other"
			switch row.keys {
			case oneKey, prefixOfKeys, manyKeys:
				denied = denied || tenant == "other"
			}
			before := w.srv.main.met.DamageReports.Load()
			st := w.ask(tenant, b)
			if (st == wire.StatusDenied) != denied {
				t.Errorf("%s of tenant %q: %v, want it denied: %v", b.name, tenant, st, denied)
			}
			if (st == wire.StatusNoHold) != (row.keys == heldPlace) {
				t.Errorf("%s of tenant %q, with a place that is held for another session: %v", b.name, tenant, st)
			}
			if took := w.srv.main.met.DamageReports.Load() > before; took != (row.keys == toldKeys && tenant != "other") {
				t.Errorf("%s of tenant %q: taken in: %v", b.name, tenant, took)
			}
		}
	})
}

// TestRowsOwnership: a node answers for no key without a map, and for none of another
// node's.
func TestRowsOwnership(t *testing.T) {
	w := newRowWorld(t, false)
	w.each(func(b *hostileBase, row *row) {
		switch row.keys {
		case oneKey, prefixOfKeys, manyKeys:
			if st := w.ask("", b); st != wire.StatusNoMap {
				t.Errorf("%s without a map: %v", b.name, st)
			}
		}
	})
	w = newRowWorld(t, true)
	m, err := cluster.Propose([16]byte{1}, "red", w.srv.main.shards, []cluster.MapNode{{ID: "b", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.owned.Set(m, "a")
	w.each(func(b *hostileBase, row *row) {
		switch row.keys {
		case oneKey, manyKeys:
			if st := w.ask("", b); st != wire.StatusMoved {
				t.Errorf("%s of a key of another node: %v", b.name, st)
			}
		}
	})
}
