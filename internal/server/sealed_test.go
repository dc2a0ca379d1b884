package server

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
)

var (
	sealedMutants = flag.Int("sealed.mutants", 3000, "mutated messages of TestSealedMutants")
	sealedSeed    = flag.Uint64("sealed.seed", 0, "its seed; 0: a new one")
)

// A hostileWorld is a node of a cluster, with a store, a shard map and tenants of
// every kind, that is about to be sent hostile messages, properly sealed.
type hostileWorld struct {
	t       testing.TB
	srv     *Server
	m       *cluster.Map
	tenants []*hostileTenant
	watch   *time.Timer // panics over a message that takes for ever
	now     string      // that message
	sent    int
	slowest time.Duration
}

// handlerPatience is how long the handlers of one message may take, on any machine.
const handlerPatience = 2 * time.Minute

// A hostileTenant is one login with the table of messages for it.
type hostileTenant struct {
	name  string
	of    *space.Space // the space that it uses
	by    *auth.Login
	bases []*hostileBase
}

func newHostileWorld(t testing.TB) *hostileWorld {
	w := &hostileWorld{t: t}
	w.srv = startServer(t, func(c *Config) {
		clusterOf("a")(c)
		c.MaxPoll = time.Millisecond
		c.Secret = secretOf("")
		c.Tenants = []Tenant{
			{Name: "anna", Secret: secret.New(secretOf("anna")), Space: "own"},
			{Name: "clerk", Secret: secret.New(secretOf("clerk")), Prefix: "desk/"},
		}
	})
	w.m = propose(t, 1, w.srv)
	text := cluster.AppendMap(nil, w.m)
	p := dial(t, w.srv, as(""))
	for _, step := range []wire.DocumentKind{wire.MapPrepare, wire.MapCommit} {
		if _, err := p.change(step, w.m); err != nil {
			t.Fatal(err)
		}
	}
	p.close()
	for _, name := range []string{"", "anna", "clerk"} {
		by := w.srv.logins.Find(wire.TenantOf(name))
		h := &hostileTenant{name: name, of: w.srv.spaces.of(by.Space), by: by}
		h.bases = hostileBases(h.of, by, text)
		w.tenants = append(w.tenants, h)
	}
	// A handler that spins on this very goroutine is named.
	w.watch = time.AfterFunc(handlerPatience, func() { panic("a handler does not end: " + w.now) })
	w.watch.Stop()
	for _, h := range w.tenants {
		w.furnish(h)
	}
	return w
}

// furnish puts the keys that the table is about.
func (w *hostileWorld) furnish(h *hostileTenant) {
	p := dial(w.t, w.srv, as(h.name))
	defer p.close()
	hour := wire.Terms{TTLMicros: uint64(time.Hour / time.Microsecond)}
	for _, m := range []wire.Put{
		{Key: plainKey, Value: []byte("value")}, {Key: numberKey, Value: []byte("41")},
		{Key: expiresKey, Value: []byte("41"), Terms: hour}, {Key: holdKey, Value: make([]byte, 15_000)},
	} {
		if _, err := p.call(func(id uint64) []byte { return wire.AppendPut(nil, id, m) }); err != nil {
			w.t.Fatalf("%s: put %s: %v", h.name, m.Key, err)
		}
	}
}

// send has one session of the tenant send one message, then a Ping, and another
// session ask for a key: the first is answered or ended, the second is answered, and
// neither leaves anything behind.
func (w *hostileWorld) send(h *hostileTenant, m hostileMsg) {
	t := w.t
	if len(m.msg) > w.srv.cfg.RequestSize {
		return // the fabric refuses it
	}
	w.sent++
	w.now = fmt.Sprintf("tenant %q, %s: %x", h.name, m.name, m.msg)
	w.watch.Reset(handlerPatience)
	defer w.watch.Stop()
	begun := time.Now()
	s, q := deafSessionOf(t, h.of, h.by, !m.hello)
	if m.hold {
		feed(t, s, q, wire.AppendGet(nil, 1, wire.Get{Key: holdKey}))
	}
	q.Serve = m.serve
	feed(t, s, q, m.msg)
	feed(t, s, q, wire.AppendPing(nil, 99, wire.Ping{}))
	alive := !s.Ended()
	answered := len(q.Types) > 0 && q.Types[len(q.Types)-1] == wire.TypePing.Reply()
	if alive != answered {
		t.Errorf("%s: alive %v, Ping answered %v: %v", w.now, alive, answered, q.Types)
	}
	endDeaf(t, s, q)

	s, q = deafSessionOf(t, h.of, h.by, true)
	feed(t, s, q, wire.AppendGet(nil, 1, wire.Get{Key: plainKey, MaxInline: 10}))
	if len(q.Types) != 1 || q.Types[0] != wire.TypeGet.Reply() {
		t.Errorf("%s: the node answers a get with %v", w.now, q.Types)
	}
	endDeaf(t, s, q)
	if n, bytes := h.by.Requests.Load(), h.by.Bytes.Load(); n != 0 || bytes != 0 {
		t.Errorf("%s: %d requests, %d bytes are still in flight", w.now, n, bytes)
	}
	w.slowest = max(w.slowest, time.Since(begun))
}

// settled checks that every place that a message may take is free again, and that
// the node, with the same map, answers real clients of each tenant within 10 ms.
func (w *hostileWorld) settled() {
	t := w.t
	t.Helper()
	for _, sp := range w.srv.spaces.every() {
		eventually(t, "all places are free", func() bool {
			st := sp.Store.Stats()
			staged, waiting := sp.Staging.InUse()
			most := sp.Staging.Line().Most()
			return st.HeldBytes == 0 && st.Inflight == 0 && st.InflightBytes == 0 && staged == 0 && waiting == 0 && most == 0 && sp.Handlers.Watches() == 0 && len(sp.Sessions.List()) == 0
		})
	}
	for _, h := range w.tenants {
		eventually(t, "the shares of tenant "+h.by.Label+" are free", func() bool {
			return h.by.Sessions.Load() == 0 && h.by.Held.Load() == 0 && h.by.Receives.Load() == 0
		})
	}
	if setups, opens := w.srv.registry.Counts(); setups != 0 || opens != 0 {
		t.Errorf("%d sessions being set up, %d open", setups, opens)
	}
	if state, digest := w.srv.member.MapState(); state != wire.MapCommitted || digest != w.m.Digest() {
		t.Errorf("the node has a map %v %x", state, digest)
	}
	if err := w.srv.sick(); err != nil || !w.srv.Ready() {
		t.Errorf("sick: %v, ready %v", err, w.srv.Ready())
	}
	for _, h := range w.tenants {
		w.furnish(h)
		p := dial(t, w.srv, as(h.name))
		// What a message left behind slows down every batch; other programs of a busy machine only some.
		const enough, batches = 10 * time.Millisecond, 7
		took := make([]time.Duration, 51)
		for batch := 1; batch == 1 || took[25] > enough && batch <= batches; batch++ {
			for i := range took {
				begun := time.Now()
				if err := p.ping(); err != nil {
					t.Fatal(err)
				}
				if r, err := p.get(string(plainKey), 10); err != nil || string(r.Value) != "value" {
					t.Fatalf("tenant %q: %+v, %v", h.name, r, err)
				}
				took[i] = time.Since(begun)
			}
			slices.Sort(took)
			t.Logf("tenant %q: ping and get in %v (median of %d, the slowest %v)", h.name, took[25], len(took), took[50])
		}
		p.close()
		if took[25] > enough {
			t.Errorf("tenant %q: ping and get take %v", h.name, took[25])
		}
	}
}

// TestSealedWindows sends every type of request with every place in its bytes at the
// edges of every width, as the main tenant. FuzzSealedFields has the fields, as every
// tenant.
func TestSealedWindows(t *testing.T) {
	w := newHostileWorld(t)
	every, n := 1, 0
	if testing.Short() {
		every = 23
	}
	hostileWindows(w.tenants[0].bases, func(m hostileMsg) {
		if n++; n%every == 0 {
			w.send(w.tenants[0], m)
		}
	})
	t.Logf("%d messages, the slowest in %v", w.sent, w.slowest)
	for typ := range 256 {
		typ := wire.Type(typ)
		if typ.IsRequest() && !slices.ContainsFunc(w.tenants[0].bases, func(b *hostileBase) bool { return wire.Type(b.encode()[1]) == typ }) {
			t.Errorf("the table has no %v", typ)
		}
	}
	w.settled()
}

// mutate changes one to four things of a message. The length in the header mostly
// fits what comes out.
func mutate(rng *rand.Rand, msg, other []byte) []byte {
	le := binary.LittleEndian
	out := slices.Clone(msg)
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(out))
		switch rng.IntN(6) {
		case 0:
			out[at] ^= 1 << rng.IntN(8)
		case 1, 2: // a word at an edge
			width := 1 << rng.IntN(4)
			list := edges(8 * width)
			var word [8]byte
			le.PutUint64(word[:], list[rng.IntN(len(list))])
			copy(out[at/width*width:], word[:width])
		case 3: // the end of another message
			if from := min(at, len(other)); at >= wire.HeaderSize {
				out = append(out[:at], other[from:]...)
			}
		case 4: // shorter
			out = out[:max(at, min(len(out), wire.HeaderSize))]
		case 5: // longer
			out = append(out, make([]byte, 1<<rng.IntN(9))...)
		}
	}
	if len(out) >= wire.HeaderSize && rng.IntN(4) > 0 {
		le.PutUint32(out[16:], uint32(len(out)-wire.HeaderSize))
	}
	return out
}

// TestSealedMutants sends messages of the table with random changes, sealed all the
// same. Run it with -sealed.mutants 1000000.
func TestSealedMutants(t *testing.T) {
	seed := *sealedSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay: go test ./internal/server -run TestSealedMutants -sealed.mutants %d -sealed.seed %d", *sealedMutants, seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	w := newHostileWorld(t)
	tables := make([][]hostileMsg, len(w.tenants))
	for i, h := range w.tenants {
		hostileFields(h.bases, func(m hostileMsg) { tables[i] = append(tables[i], m) })
	}
	mutants := *sealedMutants
	if testing.Short() {
		mutants /= 3
	}
	for n := range mutants {
		i := rng.IntN(len(w.tenants))
		m := tables[i][rng.IntN(len(tables[i]))]
		m.msg = mutate(rng, m.msg, tables[i][rng.IntN(len(tables[i]))].msg)
		m.name = fmt.Sprintf("mutant %d of %s", n, m.name)
		if w.send(w.tenants[i], m); t.Failed() {
			return
		}
	}
	t.Logf("%d messages, the slowest in %v", w.sent, w.slowest)
	w.settled()
}

// FuzzSealedFields feeds one message to a session of a tenant that knows its secret.
// Its corpus is every type of request with every field at every edge, as each kind of
// tenant, made by code; so a plain go test sends all of them. With -fuzz it is a part
// of them: go test runs all it is given before it changes anything, and slowly.
func FuzzSealedFields(f *testing.F) {
	w := newHostileWorld(f)
	every := 1
	if fuzzing := flag.Lookup("test.fuzz"); fuzzing != nil && fuzzing.Value.String() != "" {
		every = 61
	}
	seeds := 0
	for i, h := range w.tenants {
		hostileFields(h.bases, func(m hostileMsg) {
			if seeds++; seeds%every == 0 {
				f.Add(uint8(i), m.hello, m.hold, m.msg, m.serve)
			}
		})
	}
	f.Cleanup(func() {
		f.Logf("%d messages in the table, %d sent, the slowest in %v", seeds, w.sent, w.slowest)
		w.t = f
		if !f.Failed() {
			w.settled()
		}
	})
	f.Fuzz(func(t *testing.T, tenant uint8, hello, hold bool, msg, serve []byte) {
		if len(serve) == 0 {
			serve = nil
		}
		w.t = t
		w.send(w.tenants[int(tenant)%len(w.tenants)], hostileMsg{name: "fuzzed", msg: msg, hello: hello, hold: hold, serve: serve})
	})
}
