package groups

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// nobody takes nothing that other nodes say.
type nobody struct{}

func (nobody) Deliver(string, []byte) error { return nil }
func (nobody) Receive(context.Context, string, consensus.SnapshotHead, io.Reader) error {
	return consensus.ErrNoGroup
}

// meets starts the meeting of node a with node b, whom it reaches, and with node c, if it is there. It returns a's groups, and what b is asked: it answers
// with what is sent back.
func meets(t *testing.T, limit time.Duration, nodes ...string) (g *Groups, asked chan chan error) {
	t.Helper()
	return meetsAndLearns(t, limit, nil, nodes...)
}

// meetsAndLearns is meets of a node that asks those that it has met for their maps.
func meetsAndLearns(t *testing.T, limit time.Duration, learn func(context.Context, string) error, nodes ...string) (g *Groups, asked chan chan error) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	asked = make(chan chan error)
	dev, err := iwarp.New(iwarp.Options{}).Open(t.Context(), "")
	must(err)
	ln, err := dev.Listen(t.Context(), "127.0.0.1:0")
	must(err)
	open := func(name string) *transport.Transport {
		tr, err := transport.New(transport.Config{
			Name: name, Secret: []byte("s"), Openings: []wire.Opening{{Epoch: 1, Incarnation: 1}}, Endpoint: nobody{},
			Routes: func(node string) (list []transport.Route) {
				if node == "b" {
					list = append(list, transport.Route{Device: dev, Addr: ln.Addr().String()})
				}
				return list
			},
			Admit: func(string, [16]byte, []wire.Opening) error {
				answer := make(chan error)
				asked <- answer
				return <-answer
			},
		})
		must(err)
		return tr
	}
	a, b := open("a"), open("b")
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
	g = New(Env{Node: "a", Meet: limit, Learn: learn, Log: base.NewLog(slog.New(slog.DiscardHandler))})
	m := &cluster.Map{}
	for _, n := range nodes {
		m.Nodes = append(m.Nodes, cluster.MapNode{ID: n})
	}
	g.m = m
	g.link.to.Store(a)
	g.TakePart()
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		ln.Close()
		<-done
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, asked
}

func takesPart(g *Groups) bool {
	select {
	case <-g.may:
		return true
	default:
		return false
	}
}

func waits[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(teeth.Patience(20 * time.Second)):
		t.Fatalf("%s did not happen", what)
	}
	return v
}

// TestMeetsFirst: replicas take part when the other node has noted this start, and not before.
func TestMeetsFirst(t *testing.T) {
	g, asked := meets(t, time.Hour, "a", "b")
	answer := waits(t, "a question", asked)
	if takesPart(g) {
		t.Error("they take part before the other node has noted the start")
	}
	answer <- nil
	waits(t, "taking part", g.may)
}

// TestLearnsFirst: replicas take part when each node that was met has said which map it has, and not before; one that cannot say it keeps nobody, and one that was not met is not asked.
func TestLearnsFirst(t *testing.T) {
	for _, fails := range []error{nil, errors.New("it answers no questions")} {
		learns := make(chan string)
		say := make(chan error)
		g, asked := meetsAndLearns(t, time.Second, func(_ context.Context, node string) error {
			learns <- node
			return <-say
		}, "a", "b", "c")
		waits(t, "a question", asked) <- nil
		if node := waits(t, "a question for the map", learns); node != "b" {
			t.Errorf("node %s is asked", node)
		}
		if takesPart(g) {
			t.Error("they take part before the other node has said which map it has")
		}
		say <- fails
		waits(t, "taking part", g.may)
	}
}

// TestMeetsForAWhile: a node that is not there is waited for as long as it was said, and no longer.
func TestMeetsForAWhile(t *testing.T) {
	const limit = time.Second
	began := time.Now()
	g, asked := meets(t, limit, "a", "b", "c")
	waits(t, "a question", asked) <- nil
	if takesPart(g) && time.Since(began) < limit {
		t.Error("they take part although nothing was heard of c")
	}
	waits(t, "taking part", g.may)
}

// TestSetBackTakesNoPart: where one node says that this one was set back, its replicas never take part.
func TestSetBackTakesNoPart(t *testing.T) {
	g, asked := meets(t, time.Hour, "a", "b", "c")
	waits(t, "a question", asked) <- &transport.SetBackError{Node: "a", Seen: wire.Opening{Epoch: 7, Incarnation: 7}, Says: wire.Opening{Epoch: 1, Incarnation: 1}}
	met := make(chan struct{})
	go func() { g.wg.Wait(); close(met) }()
	waits(t, "the end of the meeting", met)
	if takesPart(g) {
		t.Error("they take part")
	}
}
