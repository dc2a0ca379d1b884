package read

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// withReplicas runs f with three nodes that have replicas of all groups, and a router that knows it. prepare may
// change the nodes before the client connects.
func withReplicas(t *testing.T, groups int, prepare func(*clienttest.Replicas), f func(t *testing.T, r *clienttest.Replicas, rt *route.Router)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaCluster(t, 3, 3, groups)
		if prepare != nil {
			prepare(r)
		}
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = []string{r.Nodes[0].Addr}
		if r.Nodes[0].Sinks.On {
			cfg.Wait, cfg.Spin = wait.Poll, shortSpin
		}
		rt := dial(t, cfg, clienttest.NewClock())
		defer rt.Close()
		f(t, r, rt)
	})
}

// ways are how a key can be asked for; each must return the value, or its length.
var ways = map[string]func(ctx context.Context, rt *route.Router, key string) (string, error){
	"get": func(ctx context.Context, rt *route.Router, key string) (string, error) {
		w := &Query{N: -1}
		err := Get(ctx, rt, "get", []byte(key), w)
		return string(w.Dst), err
	},
	"stat": func(ctx context.Context, rt *route.Router, key string) (string, error) {
		w := &Query{InfoOnly: true}
		err := Get(ctx, rt, "stat", []byte(key), w)
		return fmt.Sprint(w.Info.Size), err
	},
	"many": func(ctx context.Context, rt *route.Router, key string) (string, error) {
		results := make([]base.Result, 1)
		err := Many(ctx, rt, [][]byte{[]byte(key)}, results)
		if err == nil {
			err = results[0].Err
		}
		return string(results[0].Value), err
	},
}

// answer is what a way must return for a value.
func answer(way, value string) string {
	if way == "stat" {
		return fmt.Sprint(len(value))
	}
	return value
}

// TestNothingIsRead: of shards with replicas nothing is READ, on a fabric that maps memory, on one with prepared
// READs and on others: the memory of one node does not know who leads.
func TestNothingIsRead(t *testing.T) {
	for fabric, prepare := range map[string]func(*clienttest.Node){
		"plain":    func(*clienttest.Node) {},
		"mapped":   func(n *clienttest.Node) { n.Direct = true },
		"prepared": func(n *clienttest.Node) { n.Sinks.On = true },
	} {
		t.Run(fabric, func(t *testing.T) {
			reads := 0
			var keys [][]byte
			for i := range 200 {
				keys = append(keys, fmt.Appendf(nil, "k%d", i))
			}
			withReplicas(t, 2, func(r *clienttest.Replicas) {
				for _, n := range r.Nodes {
					prepare(n)
					n.OnRead = func(place uint64, dst []byte) {
						if copy(dst, n.Mem[place:]); place != layout.BeatOffset {
							reads++
						}
					}
				}
			}, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				r.Set("k1", "by SEND")
				for range 3 {
					for name, way := range ways {
						if got, err := way(t.Context(), rt, "k1"); err != nil || got != answer(name, "by SEND") {
							t.Errorf("%s: %q, %v", name, got, err)
						}
						if _, err := way(t.Context(), rt, "none"); !errors.Is(err, base.ErrNotFound) {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
				results := make([]base.Result, len(keys))
				if err := Many(t.Context(), rt, keys, results); err != nil || string(results[1].Value) != "by SEND" || !errors.Is(results[0].Err, base.ErrNotFound) {
					t.Error(err)
				}
				if n := rt.Counters(); reads != 0 || n.OneSidedHits+n.OneSidedMisses != 0 || n.SendGets == 0 {
					t.Errorf("%d READs; %+v", reads, n)
				}
			})
		})
	}
}

// TestReadsOverReplicas: a get whose leader fails in some way goes on at another replica, and the next
// one goes there at once.
func TestReadsOverReplicas(t *testing.T) {
	cut := clienttest.Fate{Cut: true}
	for name, c := range map[string]struct {
		fate  clienttest.Fate
		stop  bool // the node is gone before
		hang  bool // it takes connections, and says nothing
		least time.Duration
		most  time.Duration
	}{
		"lost":         {fate: cut, most: 30 * time.Millisecond},
		"closing":      {fate: clienttest.Fate{Status: wire.StatusClosing}, most: 30 * time.Millisecond},
		"silent":       {fate: clienttest.Fate{Silent: true}, least: peer.Silence, most: peer.Silence + 250*time.Millisecond},
		"too many":     {fate: clienttest.Fate{Status: wire.StatusOverloaded}, least: peer.Silence, most: peer.Silence + 500*time.Millisecond},
		"gone before":  {stop: true, most: 30 * time.Millisecond},
		"never answer": {hang: true, least: peer.Silence, most: peer.Silence + 250*time.Millisecond},
	} {
		for way, ask := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				var key string
				withReplicas(t, 3, func(r *clienttest.Replicas) {
					for i := 0; key == "" || r.At(key)[0] == r.Nodes[0]; i++ { // that Dial does not connect to
						key = fmt.Sprintf("k%d", i)
					}
					if c.hang {
						r.At(key)[0].Connect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
					}
				}, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
					at := r.At(key)
					r.Set(key, "value")
					if c.stop {
						r.Stop(at[0])
					}
					r.Elect(key, at[1])
					r.Draw(func(x clienttest.Copied) clienttest.Fate {
						if x.Node == at[0].ID {
							return c.fate
						}
						return clienttest.Fate{}
					})
					begun := time.Now()
					if got, err := ask(t.Context(), rt, key); err != nil || got != answer(way, "value") {
						t.Fatalf("%q, %v", got, err)
					}
					if took := time.Since(begun); took < c.least || took > c.most {
						t.Errorf("it took %v", took)
					}
					before := len(r.Copies())
					begun = time.Now()
					if got, err := ask(t.Context(), rt, key); err != nil || got != answer(way, "value") {
						t.Fatalf("%q, %v", got, err)
					}
					if took, n := time.Since(begun), len(r.Copies())-before; took != 0 || n != 1 {
						t.Errorf("the next one took %v and %d requests", took, n)
					}
				})
			})
		}
	}
}

// TestSlowLeader: a leader that takes longer than it may be silent answers at last, because it has more time each
// time that it is asked, and is not left for ever.
func TestSlowLeader(t *testing.T) {
	withReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		at := r.At("k")
		r.Set("k", "slow")
		serve := at[0].OnRequest
		at[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			out, ok := serve(h, msg)
			if h.Type != wire.TypeGet {
				return out, ok
			}
			q := at[0].LastQP()
			go func() {
				time.Sleep(900 * time.Millisecond)
				q.Deliver(out)
			}()
			return nil, true
		}
		begun := time.Now()
		got, err := ways["get"](t.Context(), rt, "k")
		if took := time.Since(begun); err != nil || got != "slow" || took > 2*time.Second {
			t.Errorf("%q, %v after %v", got, err, took)
		}
	})
}

// TestHeldAtALeader: a value that a leader holds is READ, or fetched, however long it takes in all, as long as it
// goes on; only bytes that are of it count.
func TestHeldAtALeader(t *testing.T) {
	for name, nowhere := range map[string]bool{"read": false, "fetched": true} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				const size = 150_000
				k, want := "k", value(size, 3)
				at := r.At(k)[0]
				place := itemC
				if nowhere {
					place = layout.Nowhere
				}
				item := make([]byte, layout.ItemSize(len(k), size, false))
				layout.WriteItem(item, at.Incarnation, place, layout.Item{Version: 9, Key: []byte(k), Value: []byte(want)}, layout.Held)
				at.Change(func(mem []byte) { copy(mem[itemC.Byte():], item) })
				reads, fetches := 0, 0
				at.OnRead = func(place uint64, dst []byte) {
					if copy(dst, at.Mem[place:]); place != layout.BeatOffset {
						reads++
					}
				}
				serve := at.OnRequest
				at.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
					var out []byte
					switch h.Type {
					case wire.TypeGet:
						out = wire.AppendGetReply(nil, h.ID, wire.GetReply{
							Kind: wire.GetHeld, ValueLen: size, Version: 9,
							Hold: wire.Hold{ID: 7, Place: uint64(place), Size: uint32(len(item)), KeyLen: uint16(len(k))},
						})
					case wire.TypeFetch:
						m, err := wire.ParseFetch(wire.Body(msg))
						if err != nil {
							panic(err)
						}
						fetches++
						out = wire.AppendFetchHead(nil, h.ID, m.Offset)
						out = wire.FinishFetch(append(out, item[m.Offset:][:min(m.Length, 10_000)]...), 0)
						wire.SetCredits(out, 1)
						q := at.LastQP()
						go func() {
							time.Sleep(200 * time.Millisecond)
							q.Deliver(out)
						}()
						return nil, true
					case wire.TypeRelease:
						out = wire.AppendReleaseReply(nil, h.ID)
					default:
						return serve(h, msg)
					}
					wire.SetCredits(out, 1)
					return out, true
				}
				begun := time.Now()
				got, err := ways["get"](t.Context(), rt, k)
				if err != nil || got != want {
					t.Fatalf("%d bytes, %v", len(got), err)
				}
				if nowhere && (fetches < 15 || time.Since(begun) < 3*time.Second) || !nowhere && reads == 0 || len(r.Copies()) != 0 {
					t.Errorf("%d fetches, %d READs, in %v; others were asked: %v", fetches, reads, time.Since(begun), r.Copies())
				}
			})
		})
	}
}

// TestNoLeader: a get of a group that nobody leads ends with its time, and says why; a call's own deadline is
// kept, and one that is given up ends at once.
func TestNoLeader(t *testing.T) {
	for way, ask := range ways {
		t.Run(way, func(t *testing.T) {
			withReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				r.Elect("k", nil)
				begun := time.Now()
				_, err := ask(t.Context(), rt, "k")
				if took := time.Since(begun); !errors.Is(err, base.ErrUnavailable) || !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrMoved) ||
					!strings.Contains(err.Error(), "leader") || took != 5*time.Second {
					t.Errorf("after %v: %v", took, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				begun = time.Now()
				_, err = ask(ctx, rt, "k")
				if took := time.Since(begun); !errors.Is(err, base.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || took != 300*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, cancel)
				begun = time.Now()
				_, err = ask(ctx, rt, "k")
				if took := time.Since(begun); !errors.Is(err, context.Canceled) || errors.Is(err, base.ErrTimeout) || took != 100*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestImpatientCallers: that a caller has little time tells nothing of a leader that answers others.
func TestImpatientCallers(t *testing.T) {
	withReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		at := r.At("k")
		r.Set("k", "v")
		silent := false
		r.Draw(func(clienttest.Copied) clienttest.Fate { return clienttest.Fate{Silent: silent} })
		ask := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := ways["get"](ctx, rt, "k")
			return err
		}
		if err := ask(time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond) // a tick
		if err := ask(time.Second); err != nil {
			t.Fatal(err)
		}
		silent = true
		if err := ask(20 * time.Millisecond); !errors.Is(err, base.ErrTimeout) {
			t.Error(err)
		}
		if p, _ := rt.Owner([]byte("k")); p.Node != at[0].ID {
			t.Error("the leader was left")
		}
		// In the long run it does.
		time.Sleep(time.Second)
		if err := ask(20 * time.Millisecond); !errors.Is(err, base.ErrTimeout) {
			t.Error(err)
		}
		if p, _ := rt.Owner([]byte("k")); p.Node == at[0].ID {
			t.Error("a leader that says nothing was not left")
		}
	})
}

// TestHostileReads: replies that make no sense are an error of the call that met them, and harm no other.
func TestHostileReads(t *testing.T) {
	body := func(change func([]byte) []byte) func(uint64) []byte {
		return func(id uint64) []byte {
			out := wire.AppendNotLeader(nil, wire.TypeGet, id, wire.NotLeader{Group: 1, Term: 3, Leader: []byte("n2")})
			return wire.FinishFetch(change(out), 0) // the length anew
		}
	}
	names := func(m wire.NotLeader) func(uint64) []byte {
		return func(id uint64) []byte { return wire.AppendNotLeader(nil, wire.TypeGet, id, m) }
	}
	for name, c := range map[string]struct {
		reply func(id uint64) []byte
		err   error // nil: the get goes on
	}{
		"short":             {body(func(b []byte) []byte { return b[:wire.HeaderSize+5] }), base.ErrMoved},
		"no group":          {body(func(b []byte) []byte { clear(b[wire.HeaderSize:][:4]); return b }), base.ErrMoved},
		"reserved":          {body(func(b []byte) []byte { b[wire.HeaderSize+4] = 1; return b }), base.ErrMoved},
		"a name too long":   {body(func(b []byte) []byte { return append(b, strings.Repeat("x", 80)...) }), base.ErrMoved},
		"a stranger":        {names(wire.NotLeader{Group: 1, Term: 3, Leader: []byte("zz")}), nil},
		"another group":     {names(wire.NotLeader{Group: 9, Term: 3, Leader: []byte("n1")}), nil},
		"control sequences": {names(wire.NotLeader{Group: 1, Term: 3, Leader: []byte("\x1b[2J")}), nil},
		"the last term":     {names(wire.NotLeader{Group: 1, Term: 1<<64 - 1, Leader: nil}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 1, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				at := r.At("k")
				r.Set("k", "v")
				n := 0
				serve := at[0].OnRequest
				at[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
					if h.Type != wire.TypeGet {
						return serve(h, msg)
					}
					if n++; n > 1 {
						return serve(h, msg)
					}
					out := c.reply(h.ID)
					wire.SetCredits(out, 1)
					return out, true
				}
				begun := time.Now()
				got, err := ways["get"](t.Context(), rt, "k")
				if c.err == nil && (err != nil || got != "v") || c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("%q, %v", got, err)
				}
				if err != nil && strings.Contains(err.Error(), "\x1b") {
					t.Errorf("%q", err)
				}
				if took := time.Since(begun); took > 500*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if got, err := ways["get"](t.Context(), rt, "k"); err != nil || got != "v" {
					t.Errorf("the next: %q, %v", got, err)
				}
			})
		})
	}
}

// TestManyOverAFall: of many keys those of a leader that has fallen are asked for elsewhere, all at once.
func TestManyOverAFall(t *testing.T) {
	withReplicas(t, 3, nil, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		var keys [][]byte
		for i := range 300 {
			keys = append(keys, fmt.Appendf(nil, "k%d", i))
			r.Set(string(keys[i]), "v")
		}
		results := make([]base.Result, len(keys))
		if err := Many(t.Context(), rt, keys, results); err != nil {
			t.Fatal(err)
		}
		victim := r.At("k0")[0]
		r.Draw(func(c clienttest.Copied) clienttest.Fate { return clienttest.Fate{Silent: c.Node == victim.ID} })
		for i := range keys {
			if at := r.At(string(keys[i])); at[0] == victim {
				r.Elect(string(keys[i]), at[1])
			}
		}
		begun := time.Now()
		clear(results)
		err := Many(t.Context(), rt, keys, results)
		for i := range results {
			if string(results[i].Value) != "v" {
				t.Fatal(i, results[i].Err)
			}
		}
		if took := time.Since(begun); err != nil || took > time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
