package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A wordsRig is three nodes whose memory may be READ by words: in memory the key has the value "READ", and by SEND "asked".
type wordsRig struct {
	*clienttest.Replicas
	t     *testing.T
	rt    *route.Router
	clock *clienttest.Clock
	group uint32
	at    []*clienttest.Node // of the key; the first leads, in term 1

	mu    sync.Mutex
	reads []string                                     // node and what was READ there
	hook  func(n *clienttest.Node, place layout.Place) // of each READ; the node's memory is locked
}

const wordsKey = "k"

// inWords runs f once gets of the key are one-sided.
func inWords(t *testing.T, nodes, replicas int, prepare func(*wordsRig), f func(t *testing.T, r *wordsRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &wordsRig{Replicas: clienttest.ReplicaCluster(t, nodes, replicas, 1), t: t, clock: clienttest.NewClock()}
		r.group, r.at = r.GroupOf(wordsKey).ID, r.At(wordsKey)
		r.Words()
		r.Set(wordsKey, "asked")
		for _, n := range r.Nodes {
			r.Store(n, wordsKey, "READ", 5)
			n.OnRead = func(place uint64, dst []byte) { r.serve(n, layout.PlaceOfByte(place), dst) }
		}
		if prepare != nil {
			prepare(r)
		}
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = nil
		for _, n := range r.Nodes {
			cfg.Servers = append(cfg.Servers, n.Addr)
		}
		r.rt = dial(t, cfg, r.clock)
		defer r.rt.Close()
		for range 20 {
			if got := r.get(); got == "READ" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		r.forget()
		f(t, r)
	})
}

func (r *wordsRig) serve(n *clienttest.Node, place layout.Place, dst []byte) {
	r.mu.Lock()
	what := "index"
	switch at := place.Byte(); {
	case at == layout.BeatOffset:
		what = ""
	case at >= clienttest.CellsAt && at < clienttest.DirPlace.Byte():
		what = "cell"
	case place >= clienttest.ItemsPlace:
		what = "item"
	}
	if what != "" {
		r.reads = append(r.reads, n.ID+" "+what)
	}
	hook := r.hook
	r.mu.Unlock()
	copy(dst, n.Mem[place.Byte():])
	if hook != nil {
		hook(n, place)
	}
}

func (r *wordsRig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = nil
}

// seen is what was READ since forget: of the leader as "L", of the others as "a" and so on.
func (r *wordsRig) seen() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.reads)
	for i, n := range r.at {
		for j := range list {
			if what, is := strings.CutPrefix(list[j], n.ID+" "); is {
				list[j] = string("Labcd"[i]) + " " + what
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// get returns the key's value, or the error as a text.
func (r *wordsRig) get() string {
	w := &Query{N: -1}
	if err := Get(r.t.Context(), r.rt, "get", []byte(wordsKey), w); err != nil {
		return err.Error()
	}
	return string(w.Dst)
}

// many is get by a call for many keys.
func (r *wordsRig) many() string {
	results := make([]base.Result, 1)
	if err := Many(r.t.Context(), r.rt, [][]byte{[]byte(wordsKey)}, results); err != nil {
		return err.Error()
	}
	return string(results[0].Value)
}

// TestWords: what is READ counts if the leader's cell shows its term and configuration, and as many others the term as make a majority with it; else the
// leader is asked.
func TestWords(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *wordsRig)
		want   string // the value
		reads  string // of a get whose place is remembered
	}{
		"as it is":                       {nil, "READ", "L cell, L item, a cell"},
		"the leader's word is higher":    {func(r *wordsRig) { r.at[0].SetCell(r.group, layout.Cell{Word: 2, Config: 1}) }, "asked", "L cell, L item, a cell"},
		"the leader's word is lower":     {func(r *wordsRig) { r.at[0].SetCell(r.group, layout.Cell{Word: 0, Config: 1}) }, "asked", "L cell, L item, a cell"},
		"another configuration":          {func(r *wordsRig) { r.at[0].SetCell(r.group, layout.Cell{Word: 1, Config: 2}) }, "asked", "L cell, L item, a cell"},
		"another's word is higher":       {func(r *wordsRig) { r.at[1].SetCell(r.group, layout.Cell{Word: 2, Config: 1}) }, "asked", "L cell, L item, a cell"},
		"another's word is late":         {func(r *wordsRig) { r.at[1].SetCell(r.group, layout.Cell{Word: 0, Config: 1}) }, "READ", "L cell, L item, a cell, b cell"},
		"both others' words are late":    {func(r *wordsRig) { r.setOthers(layout.Cell{Word: 0, Config: 1}) }, "asked", "L cell, L item, a cell, b cell"},
		"late, and higher":               {func(r *wordsRig) { r.setOthers(layout.Cell{Word: 0}); r.at[2].SetCell(r.group, layout.Cell{Word: 2}) }, "asked", "L cell, L item, a cell, b cell"},
		"another's configuration is old": {func(r *wordsRig) { r.at[1].SetCell(r.group, layout.Cell{Word: 1}) }, "READ", "L cell, L item, a cell"},
		"another is away":                {func(r *wordsRig) { r.Stop(r.at[1]); synctest.Wait() }, "READ", "L cell, L item, b cell"},
		"both others are away":           {func(r *wordsRig) { r.Stop(r.at[1]); r.Stop(r.at[2]); synctest.Wait() }, "asked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for way, get := range map[string]func(*wordsRig) string{"get": (*wordsRig).get, "many": (*wordsRig).many} {
				inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
					if c.change != nil {
						c.change(r)
					}
					got, reads := get(r), r.seen()
					if got != c.want || way == "get" && reads != c.reads {
						t.Errorf("%s: %q by %q; want %q by %q; %+v", way, got, reads, c.want, c.reads, r.rt.Counters())
					}
				})
			}
		})
	}
}

func (r *wordsRig) setOthers(c layout.Cell) {
	for _, n := range r.at[1:] {
		n.SetCell(r.group, c)
	}
}

// TestWordsAbsent: that a key is absent is believed by the same words.
func TestWordsAbsent(t *testing.T) {
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		look := func() error { return Get(t.Context(), r.rt, "get", []byte("none"), &Query{N: -1}) }
		if err := look(); !errors.Is(err, base.ErrNotFound) || r.rt.Counters().OneSidedMisses != 1 {
			t.Errorf("%v; %+v", err, r.rt.Counters())
		}
		r.Set("none", "there")
		r.setOthers(layout.Cell{Word: 2, Config: 1})
		w := &Query{N: -1}
		if err := Get(t.Context(), r.rt, "get", []byte("none"), w); err != nil || string(w.Dst) != "there" {
			t.Errorf("%q, %v", w.Dst, err)
		}
		r.Set("none", "by many")
		results := make([]base.Result, 1)
		if err := Many(t.Context(), r.rt, [][]byte{[]byte("none")}, results); err != nil || string(results[0].Value) != "by many" {
			t.Errorf("%q, %v", results[0].Value, err)
		}
	})
}

// TestWordsOfVoters: a majority is one of the voters of the configuration that the leader has told of (R16): of four it takes two others, a replica that
// does not vote is not READ, and a leader that has no vote is not believed.
func TestWordsOfVoters(t *testing.T) {
	ids := func(r *wordsRig, at ...int) (list []string) {
		for _, i := range at {
			list = append(list, r.at[i].ID)
		}
		return list
	}
	for name, c := range map[string]struct {
		voters func(r *wordsRig) []string
		want   string
		reads  string
	}{
		"one":             {func(r *wordsRig) []string { return ids(r, 0) }, "READ", "L cell, L item"},
		"two":             {func(r *wordsRig) []string { return ids(r, 0, 1) }, "READ", "L cell, L item, a cell"},
		"four":            {func(r *wordsRig) []string { return ids(r, 0, 1, 2, 3) }, "READ", "L cell, L item, a cell, b cell"},
		"five":            {func(r *wordsRig) []string { return ids(r, 0, 1, 2, 3, 4) }, "READ", "L cell, L item, a cell, b cell"},
		"learners":        {func(r *wordsRig) []string { return ids(r, 0, 3, 4) }, "READ", "L cell, L item, c cell"},
		"strangers":       {func(r *wordsRig) []string { return append(ids(r, 0), "x", "y") }, "asked", ""},
		"one is no voter": {func(r *wordsRig) []string { return ids(r, 1, 2, 3) }, "asked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWords(t, 5, 5, func(r *wordsRig) {
				r.Told(r.at[0], &clienttest.Told{GroupInfo: wire.GroupInfo{Cell: uint64(clienttest.CellOf(r.group)), Term: 1, Config: 1}, Voters: c.voters(r)})
			}, func(t *testing.T, r *wordsRig) {
				if got, reads := r.get(), r.seen(); got != c.want || reads != c.reads {
					t.Errorf("%q by %q; want %q by %q", got, reads, c.want, c.reads)
				}
			})
		})
	}
}

// TestWordsInTime: cells are READ once the get has begun (R13), and what the leader has told of was known before (R14): a leader that falls, and another
// one that is elected, between any two of a get's READs are noticed or came too late to matter.
func TestWordsInTime(t *testing.T) {
	t.Run("each get READs cells of its own", func(t *testing.T) {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			for i := range 3 {
				r.forget()
				if got, reads := r.get(), r.seen(); got != "READ" || reads != "L cell, L item, a cell" {
					t.Errorf("get %d: %q by %q", i, got, reads)
				}
			}
		})
	})
	t.Run("what was told meanwhile is not used", func(t *testing.T) {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			p, err := r.rt.Owner([]byte(wordsKey))
			if err != nil {
				t.Fatal(err)
			}
			s := p.Current()
			w := words{of: route.LedOf(r.rt, []byte(wordsKey))}
			if !w.begin(s, 0) {
				t.Fatal("the get cannot begin")
			}
			// The item was READ in term 1, which is over.
			for _, n := range r.at {
				n.SetCell(r.group, layout.Cell{Word: 3, Config: 1})
			}
			r.Elect(wordsKey, r.at[1])
			r.Elect(wordsKey, r.at[0])
			s.Groups.Forget(r.group, s.Groups.Of(r.group))
			time.Sleep(time.Second)
			if told := s.Groups.Of(r.group); told == nil || told.Term != 3 {
				t.Fatalf("the client has heard of %+v", told)
			}
			w.sawOwn(cellBytes(r.at[0], r.group))
			limit := p.Begin(t.Context())
			if w.hold(s, &limit, 0) {
				t.Error("what was READ in term 1 is believed by words of term 3")
			}
		})
	})
}

func cellBytes(n *clienttest.Node, group uint32) (b []byte) {
	n.Server.Change(func(mem []byte) { b = append(b, mem[clienttest.CellOf(group).Byte():][:layout.CellRead]...) })
	return b
}

// TestWordsWithinLeases: a word counts within a lease of its node alone (R17): a process that is gone may answer READs still, and its words rise no more.
func TestWordsWithinLeases(t *testing.T) {
	for way, get := range map[string]func(*wordsRig) string{"get": (*wordsRig).get, "many": (*wordsRig).many} {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			r.setHook(func(n *clienttest.Node, place layout.Place) {
				if n == r.at[1] && place == clienttest.CellOf(r.group) {
					r.clock.Advance(3 * time.Second) // longer than its lease; the leader's is over, too
				}
			})
			if got := get(r); got != "asked" {
				t.Errorf("%s: %q by %s", way, got, r.seen())
			}
		})
	}
	// The leader's lease alone does not do.
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		p, err := r.rt.Owner([]byte(wordsKey))
		if err != nil {
			t.Fatal(err)
		}
		s := p.Current()
		w := words{of: route.LedOf(r.rt, []byte(wordsKey))}
		if !w.begin(s, 0) {
			t.Fatal("the get cannot begin")
		}
		w.sawOwn(cellBytes(r.at[0], r.group))
		r.clock.Advance(3 * time.Second)
		limit := p.Begin(t.Context())
		if w.hold(s, &limit, 0) {
			t.Error("a word is believed after its node's lease")
		}
	})
}

// TestVouchersWithinLeases: of many keys a word counts within a lease of its node, too (R17), and the leader's own does not do.
func TestVouchersWithinLeases(t *testing.T) {
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		p, err := r.rt.Owner([]byte(wordsKey))
		if err != nil {
			t.Fatal(err)
		}
		for _, late := range []bool{false, true} {
			v := vouch(r.rt, [][]byte{[]byte(wordsKey)}, []int{0})
			if late {
				r.clock.Advance(3 * time.Second)
			}
			limit := p.Begin(t.Context())
			v.settle(&limit)
			if v.led[v.of[0]].holds() == late {
				t.Errorf("after the lease: %v; it holds: %v", late, v.led[v.of[0]].holds())
			}
			v.release()
		}
	})
}

func (r *wordsRig) setHook(f func(n *clienttest.Node, place layout.Place)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = f
}

// TestWordsAreNotKnown: a client that was told nothing yet, or that its leader does not lead, asks, and learns beside.
func TestWordsAreNotKnown(t *testing.T) {
	inWords(t, 3, 3, func(r *wordsRig) {
		r.Told(r.at[0], &clienttest.Told{GroupInfo: wire.GroupInfo{Cell: uint64(clienttest.CellOf(r.group)), Config: 1}, Voters: []string{r.at[0].ID}})
	}, func(t *testing.T, r *wordsRig) {
		if got, reads := r.get(), r.seen(); got != "asked" || reads != "" {
			t.Errorf("%q by %q", got, reads)
		}
		r.Told(r.at[0], nil)
		for range 10 { // the first asks for it
			time.Sleep(100 * time.Millisecond)
			r.get()
		}
		r.forget()
		if got, reads := r.get(), r.seen(); got != "READ" || !strings.Contains(reads, "L item") {
			t.Errorf("%q by %q", got, reads)
		}
	})
}

// TestWordsAreAskedForSeldom: however many gets fail by words, a node is asked for a group once in a while.
func TestWordsAreAskedForSeldom(t *testing.T) {
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		r.at[0].SetCell(r.group, layout.Cell{Word: 2, Config: 1}) // it goes on saying that it leads in term 1
		before := r.Infos()
		for range 200 {
			if got := r.get(); got != "asked" {
				t.Fatalf("%q", got)
			}
		}
		time.Sleep(time.Second)
		if n := r.Infos() - before; n > 2 {
			t.Errorf("200 gets at one moment had nodes asked %d times", n)
		}
	})
}

// storeExpired puts an item of key e into the memory of a node that expired a microsecond after 1970 began.
func (r *wordsRig) storeExpired(n *clienttest.Node) {
	r.Store(n, "e", "READ", 6)
	r.Set("e", "asked")
	n.Server.Change(func(mem []byte) { // in its place
		at := clienttest.ItemsPlace + layout.PlaceOfByte(6<<12)
		it := layout.Item{Version: 6, Key: []byte("e"), Value: []byte("READ"), Expiry: 1}
		size := layout.ItemSize(1, 4, true)
		layout.WriteItem(mem[at.Byte():at.Byte()+uint64(size)], n.Incarnation, at, it, layout.Pending)
		layout.SetState(mem[at.Byte():], 6, layout.Live)
		class, _ := layout.ClassFor(size)
		seg := clienttest.SegmentPlace + layout.PlaceOfByte(uint64(r.ShardOf("e"))*uint64(layout.SegmentBytes(0)))
		clienttest.PutWord(mem[clienttest.SlotAt(seg, []byte("e")):], uint64(layout.MakeSlot(layout.HashKey(42, []byte("e")).Fingerprint(), class, at)))
	})
}

// TestWordsExpire: that a replicated key has expired is said by the leader alone (R9).
func TestWordsExpire(t *testing.T) {
	for _, way := range []string{"get", "many"} {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			r.storeExpired(r.at[0])
			p, err := r.rt.Owner([]byte("e"))
			if err != nil {
				t.Fatal(err)
			}
			p.Current().Time.Pong(1<<40, p.Current().Now()) // the server's time
			if got, err := ways[way](t.Context(), r.rt, "e"); err != nil || got != "asked" {
				t.Errorf("%s: %q, %v by %s", way, got, err, r.seen())
			}
			if n := r.rt.Counters(); n.Fallbacks.Expiry == 0 || n.ExpiredMisses != 0 || !strings.Contains(r.seen(), "L item") {
				t.Errorf("%s: by %s; %+v", way, r.seen(), n)
			}
		})
	}
}

// TestManyWords: of many keys the cells are READ once at each node, whatever their groups, and a group that nothing vouches for takes its own keys to the
// leader and no others.
func TestManyWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &wordsRig{Replicas: clienttest.ReplicaCluster(t, 3, 3, 8), t: t, clock: clienttest.NewClock()}
		r.Words()
		var keys [][]byte
		groups := map[uint32]bool{}
		leaders := map[string]bool{}
		for i := 0; len(keys) < 64; i++ {
			k := fmt.Sprintf("k%d", i)
			groups[r.GroupOf(k).ID], leaders[r.Leader(k)] = true, true
			keys = append(keys, []byte(k))
			r.Set(k, "asked")
		}
		if len(groups) < 4 || len(leaders) < 3 {
			t.Fatalf("%d nodes lead %d groups", len(leaders), len(groups))
		}
		for _, n := range r.Nodes {
			n.OnRead = func(place uint64, dst []byte) { r.serve(n, layout.PlaceOfByte(place), dst) }
		}
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = []string{r.Nodes[0].Addr}
		r.rt = dial(t, cfg, r.clock)
		defer r.rt.Close()
		results := make([]base.Result, len(keys))
		sends := func() uint64 {
			r.forget()
			before := r.rt.Counters().SendGets
			for i := range results {
				results[i] = base.Result{}
			}
			_ = Many(t.Context(), r.rt, keys, results)
			return r.rt.Counters().SendGets - before
		}
		cells := func() (by map[string]int, most int) {
			by = map[string]int{}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, read := range r.reads {
				if node, is := strings.CutSuffix(read, " cell"); is {
					by[node]++
					most = max(most, by[node])
				}
			}
			return by, most
		}
		for range 20 { // the client has been told, and has memory for the READs
			if n := sends(); n == 0 {
				if _, most := cells(); most == 1 {
					break
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := sends(); n != 0 {
			t.Fatalf("%d keys go by SEND; %+v", n, r.rt.Counters())
		}
		for i := range results {
			if !errors.Is(results[i].Err, base.ErrNotFound) { // the memory has none of them
				t.Errorf("%s: %q, %v", keys[i], results[i].Value, results[i].Err)
			}
		}
		if by, most := cells(); most != 1 {
			t.Errorf("cells are READ by node: %v", by)
		}
		// One group's voters have another term.
		id := r.GroupOf(string(keys[0])).ID
		var of uint64
		lead := r.Leader(string(keys[0]))
		for _, k := range keys {
			if r.GroupOf(string(k)).ID == id {
				of++
			}
		}
		for _, n := range r.Nodes {
			if n.ID != lead {
				n.SetCell(id, layout.Cell{Word: 2, Config: 1})
			}
		}
		if n := sends(); n != of {
			t.Errorf("%d keys go by SEND, and %d are of the group", n, of)
		}
		for i := range results {
			inIt := r.GroupOf(string(keys[i])).ID == id
			if inIt && string(results[i].Value) != "asked" || !inIt && !errors.Is(results[i].Err, base.ErrNotFound) {
				t.Errorf("%s: %q, %v", keys[i], results[i].Value, results[i].Err)
			}
		}
	})
}

// holdReads has READs at a node end when release is called.
func holdReads(n *clienttest.Node) (release func()) {
	n.Mu.Lock()
	qps := slices.Clone(n.QPs)
	n.Mu.Unlock()
	for _, q := range qps {
		q.HoldReads()
	}
	return func() {
		for _, q := range qps {
			q.Release()
		}
	}
}

// TestWordsOfThePaused: a voter that does not answer costs one get some milliseconds: another one is READ, by the next gets at once, and if there is none the
// leader is asked.
func TestWordsOfThePaused(t *testing.T) {
	for way, get := range map[string]func(*wordsRig) string{"get": (*wordsRig).get, "many": (*wordsRig).many} {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			timed := func(want string, most time.Duration) {
				t.Helper()
				r.forget()
				began := time.Now()
				if got := get(r); got != want || time.Since(began) > most {
					t.Errorf("%s: %q in %v by %s; want %q in %v at most", way, got, time.Since(began), r.seen(), want, most)
				}
			}
			first := holdReads(r.at[1])
			timed("READ", 2*wordPatience)
			timed("READ", 0)
			if reads := r.seen(); strings.Contains(reads, "a cell") {
				t.Errorf("%s: a voter that was slow a moment ago is READ: %s", way, reads)
			}
			second := holdReads(r.at[2])
			timed("asked", 2*wordPatience)
			timed("asked", 0)
			first()
			second()
			time.Sleep(2 * slowForInTests)
			timed("READ", 0)
			if n := r.rt.Counters().QuarantinedBytes; n != 0 {
				t.Errorf("%s: %d bytes are given up on", way, n)
			}
		})
	}
}

// TestWordsOfTheLate: a voter that answers late is waited for where the leader was late, too: another one is not READ, and nobody is asked. It is given up
// after maxWordPatience, however late the leader was.
func TestWordsOfTheLate(t *testing.T) {
	for way, get := range map[string]func(*wordsRig) string{"get": (*wordsRig).get, "many": (*wordsRig).many} {
		for _, c := range []struct {
			leader, voter time.Duration
			want          string
		}{
			{40 * time.Millisecond, 70 * time.Millisecond, "READ"},
			{2 * time.Millisecond, 70 * time.Millisecond, "asked"},
			{maxWordPatience + 50*time.Millisecond, 2*maxWordPatience + 100*time.Millisecond, "asked"},
		} {
			inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
				r.forget()
				leader, voter, last := holdReads(r.at[0]), holdReads(r.at[1]), holdReads(r.at[2])
				defer last()
				time.AfterFunc(c.leader, func() {
					r.clock.Advance(c.leader)
					leader()
				})
				time.AfterFunc(c.voter, voter)
				if got := get(r); got != c.want {
					t.Errorf("%s: the leader answers after %v and a voter after %v: %q by %s, want %q", way, c.leader, c.voter, got, r.seen(), c.want)
				}
				time.Sleep(c.voter)
			})
		}
	}
}

// slowForInTests is how long a voter that was slow is left alone, at most.
const slowForInTests = 500 * time.Millisecond

// TestPausedLeader: a leader that answers no READ is left as one that answers no request: after peer.Silence, for the next replica.
func TestPausedLeader(t *testing.T) {
	for way, get := range map[string]func(*wordsRig) string{"get": (*wordsRig).get, "many": (*wordsRig).many} {
		inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
			defer holdReads(r.at[0])()
			r.Draw(func(c clienttest.Copied) clienttest.Fate { return clienttest.Fate{Silent: c.Node == r.at[0].ID} })
			r.Elect(wordsKey, r.at[1])
			began := time.Now()
			if got := get(r); got != "asked" || time.Since(began) > 2*peer.Silence {
				t.Errorf("%s: %q in %v by %s", way, got, time.Since(began), r.seen())
			}
			began = time.Now()
			if got := get(r); got != "asked" || time.Since(began) > 10*time.Millisecond {
				t.Errorf("%s: the next get: %q in %v", way, got, time.Since(began))
			}
		})
	}
}

// TestVouchersOfALeader: words of a group's leader say nothing of what is READ at another node, where a table has led the key meanwhile.
func TestVouchersOfALeader(t *testing.T) {
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		keys, results := [][]byte{[]byte(wordsKey)}, []base.Result{{Err: errPending}}
		v := vouch(r.rt, keys, []int{0})
		defer v.release()
		_, other := route.LedOf(r.rt, keys[0]).At(r.at[0].ID, 1)
		limit := other.Begin(t.Context())
		rest, _ := groupOn(other, v, false, &limit, other.Current(), keys, results, []int{0})
		if len(rest) != 1 || results[0].Err != errPending || strings.Contains(r.seen(), "a item") {
			t.Errorf("%v, %q, %v by %s", rest, results[0].Value, results[0].Err, r.seen())
		}
	})
}

// TestWordsAndContexts: a get whose context ends leaves nothing under way that nobody waits for.
func TestWordsAndContexts(t *testing.T) {
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			if err := Get(ctx, r.rt, "get", []byte(wordsKey), &Query{N: -1}); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v", err)
			}
		}
		if got := r.get(); got != "READ" {
			t.Errorf("%q", got)
		}
		if n := r.rt.Counters(); n.QuarantinedBytes != 0 {
			t.Errorf("%d bytes are given up on", n.QuarantinedBytes)
		}
	})
}
