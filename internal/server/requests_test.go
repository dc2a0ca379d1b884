package server

import (
	"cmp"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

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

// A demand is what the table of requests (package handle) must ask for, said a second time:
// a row that is changed by mistake does not pass.
type demand struct {
	right string
	keys  string
}

// What may be demanded.
const (
	toRead, toWrite, toReadAll, toAdminister = "read", "write", "read all", "administer"

	oneKey, prefixOfKeys, manyKeys = "one", "prefix", "many"
	toldKeys, heldPlace            = "told", "held"
)

var demands = map[wire.Type]demand{
	wire.TypePing:       {},
	wire.TypeView:       {toRead, ""},
	wire.TypeGet:        {toRead, oneKey},
	wire.TypeExists:     {toRead, oneKey},
	wire.TypeFetch:      {toRead, heldPlace},
	wire.TypeRelease:    {toRead, heldPlace},
	wire.TypeScan:       {toRead, prefixOfKeys},
	wire.TypeWatch:      {toRead, prefixOfKeys},
	wire.TypeReport:     {toRead, toldKeys},
	wire.TypePut:        {toWrite, oneKey},
	wire.TypePutLarge:   {toWrite, oneKey},
	wire.TypeDelete:     {toWrite, oneKey},
	wire.TypeUpdate:     {toWrite, oneKey},
	wire.TypeBatch:      {toWrite, manyKeys},
	wire.TypeBatchLarge: {toWrite, manyKeys},
	wire.TypeGroupInfo:  {toRead, ""},
}

// documentRights are the rights that documents demand; all others are the operator's.
var documentRights = map[wire.DocumentKind]string{
	wire.DocumentStats: toReadAll, wire.DocumentView: toRead, wire.DocumentMap: toRead, wire.DocumentPromise: toRead,
}

// demandOf returns what a message demands. false: it is of no session that has a login.
func demandOf(msg []byte) (demand, bool) {
	typ := wire.Type(msg[1])
	if typ != wire.TypeDocument {
		d, ok := demands[typ]
		return d, ok
	}
	return demand{right: cmp.Or(documentRights[wire.KindOf(wire.Body(msg))], toAdminister)}, true
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

// each calls f for every proper message that a session with a login may send, with what it
// demands, and checks that every type of request and every document was among them.
func (w *rowWorld) each(f func(b *hostileBase, d demand)) {
	types, kinds := map[wire.Type]bool{}, map[wire.DocumentKind]bool{}
	for _, b := range w.bases {
		msg := b.encode()
		if d, ok := demandOf(msg); ok {
			f(b, d)
			if types[wire.Type(msg[1])] = true; wire.Type(msg[1]) == wire.TypeDocument {
				kinds[wire.KindOf(wire.Body(msg))] = true
			}
		}
	}
	for typ := range wire.MaxRequest + 1 {
		if typ.IsRequest() && typ != wire.TypeHello && !types[typ] {
			w.t.Errorf("no message of type %v", typ)
		}
	}
	for kind := range wire.DocumentKinds() {
		if !kinds[kind] {
			w.t.Errorf("no message for %v", kind)
		}
	}
}

// TestRowsRights: what a tenant may not do, or to keys that he may not name, is denied;
// all else is not.
func TestRowsRights(t *testing.T) {
	w := newRowWorld(t, true)
	w.each(func(b *hostileBase, d demand) {
		for _, tenant := range []string{"", "reader", "other"} {
			by := w.srv.logins.Find(wire.TenantOf(tenant))
			denied := d.right == toWrite && !by.MayWrite || d.right == toAdminister && !by.Admin || d.right == toReadAll && tenant == "other"
			switch d.keys {
			case oneKey, prefixOfKeys, manyKeys:
				denied = denied || tenant == "other"
			}
			before := w.srv.main.Counters.DamageReports.Load()
			st := w.ask(tenant, b)
			if (st == wire.StatusDenied) != denied {
				t.Errorf("%s of tenant %q: %v, want it denied: %v", b.name, tenant, st, denied)
			}
			if (st == wire.StatusNoHold) != (d.keys == heldPlace) {
				t.Errorf("%s of tenant %q, with a place that is held for another session: %v", b.name, tenant, st)
			}
			if took := w.srv.main.Counters.DamageReports.Load() > before; took != (d.keys == toldKeys && tenant != "other") {
				t.Errorf("%s of tenant %q: taken in: %v", b.name, tenant, took)
			}
		}
	})
}

// TestRowsOwnership: a node answers for no key without a map, and for none of another
// node's.
func TestRowsOwnership(t *testing.T) {
	w := newRowWorld(t, false)
	w.each(func(b *hostileBase, d demand) {
		switch d.keys {
		case oneKey, prefixOfKeys, manyKeys:
			if st := w.ask("", b); st != wire.StatusNoMap {
				t.Errorf("%s without a map: %v", b.name, st)
			}
		}
	})
	w = newRowWorld(t, true)
	m, err := cluster.Propose([16]byte{1}, clusterName, w.srv.main.Shards, []cluster.MapNode{{ID: "b", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.owned.Set(m, "a")
	w.each(func(b *hostileBase, d demand) {
		switch d.keys {
		case oneKey, manyKeys:
			if st := w.ask("", b); st != wire.StatusMoved {
				t.Errorf("%s of a key of another node: %v", b.name, st)
			}
		}
	})
}
