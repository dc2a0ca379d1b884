package groups

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestCutLinkAsksNothing: a process that may not speak for its node any more asks nothing and answers nothing, and what it is told, or makes for an
// answer, when that happens is not believed and not told.
func TestCutLinkAsksNothing(t *testing.T) {
	dev, err := iwarp.New(iwarp.Options{}).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := dev.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered, goOn := make(chan struct{}, 1), make(chan struct{})
	groups := map[string]*Groups{}
	for _, name := range []string{"a", "b"} {
		g := New(Env{Node: name, Answer: func(_ context.Context, node string, question []byte) ([]byte, error) {
			if string(question) == "wait" {
				entered <- struct{}{}
				<-goOn
			}
			return append([]byte(node+": "), question...), nil
		}})
		if _, err := g.Ask(t.Context(), "b", nil); !errors.Is(err, consensus.ErrClosed) {
			t.Errorf("%s asks before there is a map: %v", name, err)
		}
		tr, err := transport.New(transport.Config{
			Name: name, Secret: []byte("s"), Openings: []wire.Opening{{Epoch: 1, Incarnation: 1}}, Endpoint: nobody{},
			Routes: func(string) []transport.Route { return []transport.Route{{Device: dev, Addr: ln.Addr().String()}} },
			Answer: g.link.answering(g.env.Answer),
		})
		if err != nil {
			t.Fatal(err)
		}
		g.link.to.Store(tr)
		groups[name] = g
	}
	a, b := groups["a"], groups["b"]
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			b.Accept(dev, req)
		}
	}()
	t.Cleanup(func() {
		err := a.Close()
		ln.Close()
		<-done
		if err := errors.Join(err, b.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})

	if answer, err := a.Ask(t.Context(), "b", []byte("x")); err != nil || string(answer) != "a: x" {
		t.Fatalf("%q, %v", answer, err)
	}
	cutWhile := func(g *Groups) {
		t.Helper()
		got := make(chan error, 1)
		go func() {
			answer, err := a.Ask(t.Context(), "b", []byte("wait"))
			if answer != nil {
				err = errors.Join(err, errors.New("it has an answer"))
			}
			got <- err
		}()
		waits(t, "the question", entered)
		g.Cut()
		goOn <- struct{}{}
		if err := waits(t, "its end", got); !errors.Is(err, consensus.ErrClosed) {
			t.Errorf("a question of the time before: %v", err)
		}
		if answer, err := a.Ask(t.Context(), "b", []byte("y")); answer != nil || !errors.Is(err, consensus.ErrClosed) {
			t.Errorf("a question of the time after: %q, %v", answer, err)
		}
	}
	cutWhile(b)
	b.link.cut.Store(false)
	if answer, err := a.Ask(t.Context(), "b", []byte("x")); err != nil || string(answer) != "a: x" {
		t.Fatalf("%q, %v", answer, err)
	}
	cutWhile(a)

	var none *Groups
	if _, err := none.Ask(t.Context(), "b", nil); !errors.Is(err, consensus.ErrClosed) {
		t.Errorf("a server that is alone: %v", err)
	}
	if a.link.answering(nil) != nil {
		t.Error("who answers nothing seems to answer")
	}
}
