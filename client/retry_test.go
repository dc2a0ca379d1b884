package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A ledger is what a server does to writes, in a few lines: one number that
// increments raise, and a record of each slot, kept over connections.
type ledger struct {
	f *clienttest.Server

	mu     sync.Mutex
	number int64
	seen   map[uint16]wire.RequestID
	said   map[uint16]wire.WriteReply
	ids    []wire.RequestID // in order of arrival
	typs   []wire.Type
	done   map[string]int // how often a put of each key took effect
	// fate of the next copy of a write, drawn by the test; nil: it is answered.
	fate func() fate
}

// A fate is what happens to one copy.
type fate uint8

const (
	answered   fate = iota
	lostBefore      // it does not arrive, and the line goes dead
	lostAfter       // it takes effect, and the line goes dead
	overloaded
	closing
	unknown // it takes effect, and the server says that it does not know
	numFates
)

func newLedger() *ledger {
	l := &ledger{f: clienttest.NewServer(3), seen: map[uint16]wire.RequestID{}, said: map[uint16]wire.WriteReply{}, done: map[string]int{}}
	l.f.OnRequest = l.request
	return l
}

// keyOf is the key of a put.
func keyOf(h wire.Header, msg []byte) (string, bool) {
	switch h.Type {
	case wire.TypePut:
		m, err := wire.ParsePut(wire.Body(msg))
		return string(m.Key), err == nil
	case wire.TypePutLarge:
		m, err := wire.ParsePutLarge(wire.Body(msg))
		return string(m.Key), err == nil
	}
	return "", false
}

// idOf is the request id of a write.
func idOf(h wire.Header, msg []byte) (wire.RequestID, int64, bool) {
	switch h.Type {
	case wire.TypePut:
		m, err := wire.ParsePut(wire.Body(msg))
		return m.ID, 0, err == nil
	case wire.TypePutLarge:
		m, err := wire.ParsePutLarge(wire.Body(msg))
		return m.ID, 0, err == nil
	case wire.TypeDelete:
		m, err := wire.ParseDelete(wire.Body(msg))
		return m.ID, 0, err == nil
	case wire.TypeUpdate:
		m, err := wire.ParseUpdate(wire.Body(msg))
		return m.ID, m.Delta, err == nil
	case wire.TypeBatch:
		m, err := wire.ParseBatch(wire.Body(msg))
		return m.ID, 0, err == nil
	}
	return wire.RequestID{}, 0, false
}

func (l *ledger) request(h wire.Header, msg []byte) ([]byte, bool) {
	id, delta, ok := idOf(h, msg)
	if !ok {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids, l.typs = append(l.ids, id), append(l.typs, h.Type)
	what := answered
	if l.fate != nil {
		what = l.fate()
	}
	refuse := func(s wire.Status) ([]byte, bool) {
		out := wire.AppendError(nil, h.Type, h.ID, s, "")
		wire.SetCredits(out, 1)
		return out, true
	}
	die := func() { go l.f.LastQP().Die(rdma.ErrPeerGone) }
	switch what {
	case lostBefore:
		die()
		return nil, true
	case overloaded:
		return refuse(wire.StatusOverloaded)
	case closing:
		return refuse(wire.StatusClosing)
	}
	old := l.seen[id.Slot]
	switch {
	case id.Seq < old.Seq:
		return refuse(wire.StatusUnknown)
	case id.Seq > old.Seq:
		l.number += delta
		if key, ok := keyOf(h, msg); ok {
			l.done[key]++
		}
		l.seen[id.Slot] = id
		l.said[id.Slot] = wire.WriteReply{Version: uint64(len(l.ids)), Applied: true, Number: l.number}
	}
	switch what {
	case lostAfter:
		die()
		return nil, true
	case unknown:
		return refuse(wire.StatusUnknown)
	}
	out := wire.AppendWriteReply(nil, h.Type, h.ID, l.said[id.Slot])
	wire.SetCredits(out, 1)
	return out, true
}

// fated draws the fates of the next copies from a list; then all are answered.
func (l *ledger) fated(list ...fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids, l.typs = nil, nil
	l.fate = func() fate {
		if len(list) == 0 {
			return answered
		}
		next := list[0]
		list = list[1:]
		return next
	}
}

// Every copy of a write carries the same id, its age rises from 0, and the next
// write of the slot has a higher seq.
func TestRetryUnderTheSameID(t *testing.T) {
	l := newLedger()
	c := dialFake(t, l.f, nil, nil)
	var last uint64
	for _, fates := range [][]fate{
		nil, {closing}, {lostBefore}, {lostAfter}, {overloaded, overloaded, overloaded}, {unknown},
		{lostAfter, lostBefore, unknown, overloaded, closing, lostAfter},
	} {
		l.fated(fates...)
		if err := c.Put(t.Context(), fakeKey, []byte("v")); err != nil {
			t.Fatalf("%v: %v", fates, err)
		}
		if len(l.ids) != len(fates)+1 {
			t.Errorf("%v: %d copies", fates, len(l.ids))
		}
		for i, id := range l.ids {
			if id.Slot != 0 || id.Seq != l.ids[0].Seq || (id.AgeMillis == 0) != (i == 0) {
				t.Errorf("%v: copy %d has the id %+v", fates, i, id)
			}
		}
		if l.ids[0].Seq <= last {
			t.Errorf("seq %d after %d", l.ids[0].Seq, last)
		}
		last = l.ids[0].Seq
	}
	settled(t, c)
}

// Increments by many goroutines over a server that loses, refuses and forgets
// at random: the number is the sum of those that were acknowledged.
func TestIncrementsCountOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	l := newLedger()
	l.fate = func() fate { // called with l.mu held
		switch {
		case len(l.ids)%25 == 0:
			return unknown
		case rng.IntN(16) > 0:
			return answered // a line that dies again and again is made again ever more slowly
		}
		return fate(rng.IntN(int(numFates)))
	}
	c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.Timeout = time.Minute })
	const workers, each = 8, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	sums := map[int64]int{}
	for range workers {
		wg.Go(func() {
			for range each {
				n, err := c.Increment(context.Background(), fakeKey, 1)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
				mu.Lock()
				sums[n]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if l.number != workers*each || len(sums) != workers*each {
		t.Errorf("seed %d: %d increments made %d, with %d different sums", seed, workers*each, l.number, len(sums))
	}
	settled(t, c)
}

// What was sent and never answered is unknown, whatever failed afterwards: here
// the server cannot be reached any more.
func TestUnknownIsNotFailed(t *testing.T) {
	for _, tc := range []struct {
		name string
		what fate
		want bool
	}{{"took effect", lostAfter, true}, {"lost", lostBefore, true}, {"refused", closing, false}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 300*time.Millisecond, 100*time.Millisecond })
				away := errors.New("nobody is there")
				l.fate = func() fate {
					l.f.Connect = func(context.Context) error { return away }
					return tc.what
				}
				err := c.Put(t.Context(), fakeKey, []byte("v"))
				if got := errors.Is(err, client.ErrOutcomeUnknown); err == nil || got != tc.want {
					t.Errorf("%v; unknown is %v, want %v", err, got, tc.want)
				}
				if k := c.Counters(); (k.OutcomeUnknown == 1) != tc.want {
					t.Errorf("%d outcomes unknown", k.OutcomeUnknown)
				}
			})
		})
	}
}

// A server that has no room until the time is over has changed nothing, and is
// what the error tells. (If the time is over while a copy is under way, the
// outcome is unknown: then the test tries again.)
func TestOverloadedToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.fate = func() fate { return overloaded }
		c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.Timeout = 100 * time.Millisecond })
		clienttest.Eventually(t, "the error is ErrOverloaded", func() bool {
			err := c.Put(t.Context(), fakeKey, nil)
			if !errors.Is(err, client.ErrOverloaded) && !errors.Is(err, client.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			return errors.Is(err, client.ErrTimeout) && !errors.Is(err, client.ErrOutcomeUnknown)
		})
		if len(l.ids) < 3 || l.number != 0 {
			t.Errorf("%d copies", len(l.ids))
		}
	})
}

// A call that ends while the server keeps silent gives its slot to the next one,
// and a late copy of it is refused by its seq.
func TestSlotAfterUnknown(t *testing.T) {
	l := newLedger()
	c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.MaxInflight = 1 })
	l.fated(lostBefore)
	ctx, cancel := context.WithCancel(t.Context())
	l.f.Connect = func(context.Context) error { cancel(); return errors.New("not now") }
	if err := c.Put(ctx, fakeKey, nil); !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.f.Connect = nil
	old := l.ids[0]
	if err := c.Put(t.Context(), fakeKey, nil); err != nil {
		t.Fatal(err)
	}
	if now := l.ids[len(l.ids)-1]; now.Slot != old.Slot || now.Seq <= old.Seq {
		t.Errorf("%+v after %+v", now, old)
	}
}

// Never are there two writes in one slot, nor more slots than MaxInflight.
func TestSlotsAreOneWriteEach(t *testing.T) {
	l := newLedger()
	c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.MaxInflight = 3 })
	ids := rt(c).Only().IDs
	taken := map[uint16]bool{}
	p := rt(c).Only().Begin(t.Context())
	for range 3 {
		id, err := ids.Take(&p)
		if err != nil || taken[id.Slot] || id.Slot >= 3 {
			t.Fatal(id, err)
		}
		taken[id.Slot] = true
	}
	if _, ok := ids.TryTake(); ok {
		t.Fatal("a fourth slot")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Put(ctx, fakeKey, nil); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("waiting for a slot: %v", err)
	}
	for slot := range taken {
		ids.Put(wire.RequestID{Slot: slot})
	}
	if err := c.Put(t.Context(), fakeKey, nil); err != nil {
		t.Error(err)
	}
}

// A large put keeps what it has staged over its copies, and gives it back once.
func TestLargePutIsStagedOnce(t *testing.T) {
	l := newLedger()
	c := dialFake(t, l.f, nil, nil)
	l.fated(lostAfter, overloaded, lostBefore)
	if err := c.Put(t.Context(), fakeKey, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if len(l.ids) != 4 || l.typs[3] != wire.TypePutLarge {
		t.Errorf("%v", l.typs)
	}
	settled(t, c)
	clienttest.Eventually(t, "the staging memory is back", func() bool {
		return rt(c).Only().Current().Device.Staging.Usage().Out == 0
	})
}

// MultiPut sends what was lost again, under the ids that it had.
func TestMultiPutRetries(t *testing.T) {
	for _, inflight := range []int{1, 4} {
		t.Run(fmt.Sprint(inflight), func(t *testing.T) {
			l := newLedger()
			c := dialFake(t, l.f, nil, func(cfg *client.Config) { cfg.MaxInflight = inflight })
			var pairs []client.Pair
			for i := range 12 {
				size := 10
				if i%5 == 4 {
					size = 50_000
				}
				pairs = append(pairs, client.Pair{Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, size)})
			}
			l.fated(answered, lostAfter, overloaded, lostBefore, closing, answered, unknown)
			if err := c.MultiPut(t.Context(), pairs); err != nil {
				t.Fatal(err)
			}
			distinct := map[wire.RequestID]bool{}
			for _, id := range l.ids {
				distinct[wire.RequestID{Slot: id.Slot, Seq: id.Seq}] = true
			}
			// A put whose post found the line dead was not sent, and has taken another id.
			if len(distinct) < len(pairs) || len(distinct) > len(pairs)+inflight {
				t.Errorf("%d pairs under %d ids", len(pairs), len(distinct))
			}
			// A put that took effect twice would do so over what others have put meanwhile.
			for _, pair := range pairs {
				if n := l.done[string(pair.Key)]; n != 1 {
					t.Errorf("the put of %s took effect %d times", pair.Key, n)
				}
			}
			settled(t, c)
		})
	}
}

// What a condition says, for each way to write.
func TestConditions(t *testing.T) {
	l := newLedger()
	reply := wire.WriteReply{Version: 42}
	var last []byte
	l.f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if _, _, ok := idOf(h, msg); !ok {
			return nil, false
		}
		last = msg
		out := wire.AppendWriteReply(nil, h.Type, h.ID, reply)
		wire.SetCredits(out, 1)
		return out, true
	}
	c := dialFake(t, l.f, nil, nil)
	ctx := t.Context()
	var v *client.VersionError
	if _, err := c.PutWith(ctx, fakeKey, nil, client.PutOptions{IfAbsent: true}); !errors.Is(err, client.ErrExists) || !errors.As(err, &v) || v.Actual != 42 {
		t.Error(err)
	}
	if _, err := c.PutWith(ctx, fakeKey, nil, client.PutOptions{IfVersion: 7, TTL: 1500 * time.Nanosecond}); !errors.Is(err, client.ErrVersionMismatch) || !errors.As(err, &v) || v.Actual != 42 {
		t.Error(err)
	}
	m, err := wire.ParsePut(wire.Body(last))
	if err != nil || m.If != wire.CondVersion || m.IfVersion != 7 || m.TTLMicros != 2 {
		t.Errorf("%+v %v", m, err)
	}
	if err := c.DeleteIf(ctx, fakeKey, 7); !errors.Is(err, client.ErrVersionMismatch) {
		t.Error(err)
	}
	reply.Version = 0
	if err := c.DeleteIf(ctx, fakeKey, 7); !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrVersionMismatch) {
		t.Error(err)
	}
	if err := c.Touch(ctx, fakeKey, time.Second); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	for _, opts := range []client.PutOptions{{IfAbsent: true, IfVersion: 1}, {TTL: -1}, {TTL: 1<<63 - 1}, {IfVersion: 1<<64 - 1}} {
		if _, err := c.PutWith(ctx, fakeKey, nil, opts); !errors.Is(err, client.ErrOptions) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	// A plain put cannot be refused by a condition.
	reply.Version = 42
	if err := c.Put(ctx, fakeKey, nil); !errors.Is(err, client.ErrProtocol) {
		t.Error(err)
	}
}

func TestBatchIsChecked(t *testing.T) {
	l := newLedger()
	var last []byte
	reply := wire.WriteReply{Version: 9, Applied: true}
	l.f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeBatch && h.Type != wire.TypeBatchLarge {
			return nil, false
		}
		last = msg
		out := wire.AppendWriteReply(nil, h.Type, h.ID, reply)
		wire.SetCredits(out, 1)
		return out, true
	}
	c := dialFake(t, l.f, nil, nil)
	ctx := t.Context()
	var b client.Batch
	for name, fill := range map[string]func(){
		"empty":     func() {},
		"twice":     func() { b.Put([]byte("a"), nil); b.Delete([]byte("a")) },
		"too large": func() { b.Put([]byte("a"), make([]byte, client.MaxBatchBytes)) },
		"too many": func() {
			for i := range client.MaxBatchKeys + 1 {
				b.Delete(fmt.Appendf(nil, "%d", i))
			}
		},
	} {
		b.Reset()
		fill()
		if _, err := c.WriteBatch(ctx, &b); !errors.Is(err, client.ErrBatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Reset()
	b.Put(nil, nil)
	if _, err := c.WriteBatch(ctx, &b); !errors.Is(err, client.ErrKeyEmpty) {
		t.Error(err)
	}
	b.Reset()
	b.Put([]byte("a"), []byte("1"))
	b.PutWith([]byte("b"), []byte("2"), client.PutOptions{IfAbsent: true})
	b.DeleteIf([]byte("c"), 3)
	if version, err := c.WriteBatch(ctx, &b); err != nil || version != 9 || b.Len() != 3 {
		t.Fatal(version, err)
	}
	m, err := wire.ParseBatch(wire.Body(last))
	if err != nil || m.Parts.Count() != 3 || m.ID.Seq == 0 {
		t.Fatalf("%+v %v", m, err)
	}
	var v *client.VersionError
	reply = wire.WriteReply{Version: 5, Number: 1}
	if _, err := c.WriteBatch(ctx, &b); !errors.As(err, &v) || !errors.Is(err, client.ErrExists) || v.Part != 1 || v.Actual != 5 || !strings.Contains(err.Error(), `write 1, of "b"`) {
		t.Error(err)
	}
	reply.Number = 7
	if _, err := c.WriteBatch(ctx, &b); !errors.Is(err, client.ErrProtocol) {
		t.Error(err)
	}
	reply = wire.WriteReply{Version: 9, Applied: true}
	b.Put([]byte("d"), make([]byte, session.MessageSize))
	if _, err := c.WriteBatch(ctx, &b); err != nil {
		t.Fatal(err)
	}
	if h, _ := wire.ParseHeader(last); h.Type != wire.TypeBatchLarge {
		t.Errorf("a large batch went as %v", h.Type)
	}
	settled(t, c)
}

// Keys of different shards are refused before anything is sent.
func TestBatchOfTwoShards(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	var b client.Batch
	for i := range 32 {
		b.Put(fmt.Appendf(nil, "k%d", i), nil)
	}
	if _, err := c.WriteBatch(t.Context(), &b); !errors.Is(err, client.ErrCrossShard) {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), []byte("k0")); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}
