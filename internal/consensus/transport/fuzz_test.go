package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// openingsOf are the starts that bytes tell of.
func openingsOf(b []byte) (list []wire.Opening) {
	for len(b) >= 16 && len(list) <= wire.MaxOpenings {
		list = append(list, wire.Opening{Epoch: binary.LittleEndian.Uint64(b), Incarnation: binary.LittleEndian.Uint64(b[8:])})
		b = b[16:]
	}
	return list
}

// FuzzWay: a node that knows the secret opens a way with a hello of any content, and sends messages of every kind behind it. Nobody is asked to let
// in who may not speak, nothing is delivered of any other, and the node goes on: the next way is served.
func FuzzWay(f *testing.F) {
	type asked struct {
		node     string
		openings []wire.Opening
	}
	var mu sync.Mutex
	var in []asked
	var wrong atomic.Pointer[string] // who was answered and may not ask
	l := &lan{sites: map[string]*site{}}
	evil := l.open(f, "evil", nil)
	b := l.open(f, "b", func(c *Config) {
		c.Knows = func(node string) bool { return node == "a" || node == "c" }
		c.Answer = func(_ context.Context, node string, question []byte) ([]byte, error) {
			if node != "a" && node != "c" || len(question) > MaxAsk {
				wrong.Store(&node)
			}
			return question, nil
		}
		c.Admit = func(node string, _ [16]byte, openings []wire.Opening) error {
			mu.Lock()
			defer mu.Unlock()
			in = append(in, asked{node, openings})
			if openings[0].Epoch > 1<<60 {
				return &SetBackError{Node: node, Seen: wire.Opening{Epoch: 1, Incarnation: 1}, Says: openings[0]}
			}
			return nil
		}
	})
	f.Cleanup(func() { evil.end(f); b.end(f) })
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	for kind := range byte(kinds + 1) {
		f.Add(kind, byte(1), "a", "b", one, []byte{kind, 1, 0, 9, kind, 0, 1, 200, kind, 1, 2, 3})
	}
	f.Add(byte(0), byte(1), "b", "b", one, []byte{kindData, 1, 0, 9})
	f.Add(byte(1), byte(1), "stranger", "b", one, []byte{kindData, 1, 0, 9})
	f.Add(byte(3), byte(1), "a", "b", one, []byte{kindCredit, 0, 1, 0, kindQuestion, 0, 1, 200, kindQuestion, 1, 1, 9, kindQuestion, 1, 2, 0})
	f.Add(byte(3), byte(1), "a", "b", one, []byte{kindQuestion, 1, 1, 9, kindQuestion, 1, 1, 9})
	f.Add(byte(3), byte(1), "a", "b", one, []byte{kindQuestion, 1, 1, 9, kindAnswer, 1, 1, 9, kindFailure, 1, 1, 9})
	f.Add(byte(3), byte(1), "stranger", "b", one, []byte{kindQuestion, 1, 1, 9})
	f.Add(byte(2), byte(1), "a", "c", one, []byte{kindOffer, 1, 3, 9})
	f.Add(byte(2), byte(2), "a", "b", one, []byte{})
	f.Add(byte(1), byte(1), "a", "b", []byte{255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0}, []byte{kindCredit, 0, 3, 0})
	f.Add(byte(1), byte(1), "", string(make([]byte, 300)), make([]byte, 16*70), []byte{})
	var nonce uint64
	f.Fuzz(func(t *testing.T, lane, cluster byte, from, to string, openings, sends []byte) {
		if len(from) > 300 || len(to) > 300 {
			return // they fit no SEND
		}
		c := wire.NodeConnect{Lane: wire.LaneUrgent + wire.Lane(lane%4)}
		nonce++
		binary.LittleEndian.PutUint64(c.Nonce[:], nonce)
		connect := wire.AppendNodeConnect(nil, []byte("secret"), c)
		e, accept := knock(t, evil, "b", c.Lane, connect)
		defer e.close()
		h := wire.NodeHello{Cluster: [16]byte{cluster}, From: []byte(from), To: []byte(to), Openings: openingsOf(openings)}
		mu.Lock()
		in = nil
		mu.Unlock()
		b.box.mu.Lock()
		clear(b.box.got)
		b.box.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), teeth.Patience(20*time.Second))
		defer cancel()
		err := e.say(ctx, message{kind: kindHello, body: wire.AppendNodeHello(nil, []byte("secret"), connect, accept, h)})
		values := []uint32{0, 1, pieceBytes, 1 << 31, 1<<32 - 1}
		for n := 0; err == nil && len(sends) >= 4 && n < 8; n++ {
			err = e.say(ctx, message{kind: sends[0], last: sends[1]&1 == 1, value: values[int(sends[2])%len(values)], body: make([]byte, sends[3])})
			sends = sends[4:]
		}
		if err != nil && !errors.Is(err, errProtocol) && ctx.Err() != nil {
			t.Fatalf("it does not get rid of what it says: %v", err)
		}
		good := cluster == 1 && to == "b" && (from == "a" || from == "c") && len(h.Openings) > 0 && len(h.Openings) <= wire.MaxOpenings
		for _, o := range h.Openings {
			good = good && o.Incarnation != 0
		}
		if good {
			for mu.Lock(); len(in) == 0; mu.Lock() { // it is asked for
				mu.Unlock()
				select {
				case <-e.qp.Done():
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					t.Fatal("a node that may speak is not let in")
				}
				if len(sends) == 0 && ctx.Err() != nil {
					return
				}
			}
			mu.Unlock()
		}
		if node := wrong.Load(); node != nil {
			t.Errorf("%q is answered", *node)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range in {
			if !good || a.node != from || len(a.openings) != len(h.Openings) {
				t.Errorf("node %q with %v is asked for: %+v of cluster %d", a.node, a.openings, h, cluster)
			}
		}
		b.box.mu.Lock()
		defer b.box.mu.Unlock()
		for node := range b.box.got {
			if !good || node != from {
				t.Errorf("what %q says, which is %q, is delivered", node, from)
			}
		}
	})
}

// FuzzAnswers: whatever messages come to a node that has asked, each question ends once, with an answer that was said to it, a failure, or the end
// of the way, and nothing else is kept.
func FuzzAnswers(f *testing.F) {
	sites := &lan{sites: map[string]*site{}}
	evil := sites.open(f, "b", nil)
	evil.stop()
	<-evil.done
	a := sites.open(f, "a", nil)
	f.Cleanup(func() { a.end(f); evil.end(f) })
	f.Add([]byte{kindAnswer, 1, 1, 9})
	f.Add([]byte{kindAnswer, 0, 1, 9, kindAnswer, 1, 1, 9, kindFailure, 1, 2, 9})
	f.Add([]byte{kindAnswer, 0, 1, 9, kindFailure, 1, 2, 9})
	f.Add([]byte{kindCredit, 0, 1, 0, kindAnswer, 1, 2, 9, kindAnswer, 1, 1, 0})
	f.Add([]byte{kindAnswer, 1, 1, 9, kindAnswer, 1, 1, 9})
	f.Add([]byte{kindQuestion, 1, 1, 9})
	f.Fuzz(func(t *testing.T, says []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), teeth.Patience(20*time.Second))
		defer cancel()
		spoken := make(chan struct{})
		go func() {
			defer close(spoken)
			req, err := evil.ln.Accept(ctx)
			if err != nil {
				return
			}
			_, e, err := evil.welcome(evil.dev, req)
			if err != nil {
				return
			}
			defer e.close() // which ends the way, with what has no answer
			for asked := 0; asked < 2; {
				m, slot, err := e.hear(ctx)
				if err != nil {
					return
				}
				if m.kind == kindQuestion {
					asked++
				}
				e.recv(slot)
			}
			for n := 0; len(says) >= 4 && n < 8; n++ {
				if e.say(ctx, message{kind: says[0], last: says[1]&1 == 1, value: uint32(says[2] % 4), body: make([]byte, says[3])}) != nil {
					return
				}
				says = says[4:]
			}
			for len(e.free) < e.sends && e.poll(ctx) == nil { // they have left
			}
		}()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_, err := a.Ask(ctx, "b", []byte("x"))
				var failed *AskError
				var lost *LostError
				if ctx.Err() != nil || err != nil && !errors.As(err, &failed) && !errors.As(err, &lost) {
					t.Errorf("a question ends with %v", err)
				}
			})
		}
		all.Wait()
		<-spoken
		if n := a.places("b"); n != 0 {
			t.Errorf("%d questions are kept", n)
		}
		a.Forget("b")
	})
}

// FuzzRefusal: a refusal counts if it is signed for this way, and names a start that this node does not know of.
func FuzzRefusal(f *testing.F) {
	connect := wire.AppendNodeConnect(nil, []byte("secret"), wire.NodeConnect{Lane: wire.LaneBulk})
	accept := wire.AppendNodeAccept(nil, []byte("secret"), connect, 1, wire.Nonce{1})
	var told []wire.Opening
	a := must(New(Config{Name: "a", Secret: []byte("secret"), Openings: first, Routes: func(string) []Route { return nil }, SetBack: func(_ string, o wire.Opening) { told = append(told, o) }}))
	f.Cleanup(func() { a.Close() })
	f.Add(uint64(1), uint64(1), []byte{}, true)
	f.Add(uint64(1), uint64(2), []byte{}, true)
	f.Add(^uint64(0), ^uint64(0), []byte{1}, true)
	f.Add(uint64(0), uint64(0), []byte{}, true)
	f.Add(uint64(0), uint64(0), make([]byte, wire.NodeRefusalSize), false)
	f.Fuzz(func(t *testing.T, epoch, incarnation uint64, more []byte, signed bool) {
		told = nil
		refusal := more
		if signed {
			refusal = append(wire.AppendNodeRefusal(nil, []byte("secret"), connect, accept, wire.Opening{Epoch: epoch, Incarnation: incarnation}), more...)
		}
		err := a.setBack("b", refusal, connect, accept)
		var back *SetBackError
		counts := signed && len(more) == 0 && incarnation != 0 && (wire.Opening{Epoch: epoch, Incarnation: incarnation}) != first[0]
		if errors.As(err, &back) != counts || len(told) > 0 != counts || err == nil {
			t.Fatalf("start %d %d, signed %v, %d bytes more: %v, told %v", epoch, incarnation, signed, len(more), err, told)
		}
	})
}
