package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A stranger is a connection request of somebody who does not know the secret.
type stranger struct{ private []byte }

func (s stranger) PrivateData() []byte { return s.private }
func (stranger) RemoteAddr() net.Addr  { return &net.TCPAddr{} }
func (stranger) Reject([]byte) error   { return nil }
func (stranger) Accept(context.Context, rdma.QP, rdma.ConnParams) (rdma.ConnInfo, error) {
	return rdma.ConnInfo{}, errors.New("accepted")
}

type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

// TestStrangersFillNoLog: who does not know the secret does not fill the log by asking.
func TestStrangersFillNoLog(t *testing.T) {
	l := &lines{Handler: slog.DiscardHandler}
	a := must(New(Config{Name: "a", Secret: []byte("secret"), Openings: first, Routes: func(string) []Route { return nil }, Logger: slog.New(l)}))
	for i := range 2000 {
		c := wire.NodeConnect{Lane: wire.LaneBulk}
		c.Nonce[0], c.Nonce[1] = byte(i), byte(i>>8)
		a.Accept(nil, stranger{wire.AppendNodeConnect(nil, []byte("another"), c)})
	}
	a.running.Wait()
	if n := l.n.Load(); n == 0 || n > 20 {
		t.Errorf("%d lines", n)
	}
	a.Close()
}

// TestSetBackIsTold: a node whose data directory does not know of what was seen of it is heard by nobody, and is told which opening that was.
func TestSetBackIsTold(t *testing.T) {
	seen := wire.Opening{Epoch: 5, Incarnation: 55}
	var asked atomic.Pointer[[]wire.Opening]
	told := make(chan wire.Opening, 8)
	l := &lan{sites: map[string]*site{}}
	mine := []wire.Opening{{Epoch: 6, Incarnation: 66}, {Epoch: 4, Incarnation: 44}}
	a := l.open(t, "a", func(c *Config) {
		c.Store, c.Openings = [16]byte{9}, mine
		c.SetBack = func(by string, seen wire.Opening) {
			if by == "b" {
				told <- seen
			}
		}
	})
	b := l.open(t, "b", func(c *Config) {
		c.Admit = func(node string, store [16]byte, openings []wire.Opening) error {
			if node != "a" || store != [16]byte{9} {
				t.Errorf("node %q, store %x", node, store)
			}
			asked.Store(&openings)
			return &SetBackError{Node: node, Seen: seen, Says: openings[0]}
		}
	})
	t.Cleanup(func() { a.end(t); b.end(t) })
	for _, urgent := range []bool{true, false} {
		a.Send("b", urgent, []byte("I vote for you"))
		select {
		case got := <-told:
			if got != seen {
				t.Errorf("it is told of %+v", got)
			}
		case <-time.After(teeth.Patience(20 * time.Second)):
			t.Fatal("it is not told")
		}
	}
	if got := asked.Load(); got == nil || !slices.Equal(*got, mine) {
		t.Errorf("the other heard of the openings %v", got)
	}
	b.box.mu.Lock()
	defer b.box.mu.Unlock()
	if b.box.bytes != 0 {
		t.Error("what it says is delivered")
	}
}

// TestFalseRefusal: a node that is refused for an opening that it knows of, or with a refusal of another way, does not stand down.
func TestFalseRefusal(t *testing.T) {
	connect := wire.AppendNodeConnect(nil, []byte("secret"), wire.NodeConnect{Lane: wire.LaneBulk})
	accept := wire.AppendNodeAccept(nil, []byte("secret"), connect, 1, wire.Nonce{1})
	another := wire.AppendNodeAccept(nil, []byte("secret"), connect, 1, wire.Nonce{2})
	var told []wire.Opening
	a := must(New(Config{Name: "a", Secret: []byte("secret"), Openings: first, Routes: func(string) []Route { return nil }, SetBack: func(_ string, o wire.Opening) { told = append(told, o) }}))
	defer a.Close()
	strange := wire.Opening{Epoch: 1, Incarnation: 2}
	for name, refusal := range map[string][]byte{
		"of its own start":   wire.AppendNodeRefusal(nil, []byte("secret"), connect, accept, first[0]),
		"of another way":     wire.AppendNodeRefusal(nil, []byte("secret"), connect, another, strange),
		"without the secret": wire.AppendNodeRefusal(nil, []byte("guess"), connect, accept, strange),
		"nothing":            nil,
	} {
		if err := a.setBack("b", refusal, connect, accept); !errors.Is(err, errProtocol) || len(told) > 0 {
			t.Errorf("%s: %v, told %v", name, err, told)
		}
	}
	var back *SetBackError
	err := a.setBack("b", wire.AppendNodeRefusal(nil, []byte("secret"), connect, accept, strange), connect, accept)
	if !errors.As(err, &back) || back.Seen != strange || len(told) != 1 || told[0] != strange {
		t.Errorf("a true one: %v, told %v", err, told)
	}
}

// TestOpeningsAreNeeded: a transport that cannot say which start of its node this is would be refused everywhere.
func TestOpeningsAreNeeded(t *testing.T) {
	for _, n := range []int{0, wire.MaxOpenings + 1} {
		if _, err := New(Config{Name: "a", Openings: slices.Repeat(first, n)}); err == nil {
			t.Errorf("%d openings are taken", n)
		}
	}
}
