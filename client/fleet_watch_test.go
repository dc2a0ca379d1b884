package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// watchedBy has a node answer Watch with what page has behind the version that is
// asked from; now is its last one at the beginning.
func watchedBy(n *clienttest.Node, now uint64, page func(from uint64) []wire.Event) {
	n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeWatch {
			return n.Answer(h, msg)
		}
		m, err := wire.ParseWatch(wire.Body(msg))
		if err != nil {
			panic(err)
		}
		next := m.From
		if next == (wire.Cursor{}) {
			next = wire.Cursor{Incarnation: n.Incarnation, Version: now}
		}
		out := wire.BeginWatchReply(nil, h.ID)
		events := page(m.From.Version)
		for _, e := range events {
			out, next.Version = wire.AppendEvent(out, e), e.Version
		}
		time.Sleep(5 * time.Millisecond) // as a server waits for the next event
		out = wire.EndWatchReply(out, 0, uint32(len(events)), next, false)
		wire.SetCredits(out, 1)
		return out, true
	}
}

// pages are those that there are, by the version before them.
func pages(list map[uint64][]wire.Event) func(uint64) []wire.Event {
	return func(from uint64) []wire.Event { return list[from] }
}

func putEvent(version uint64, more bool) wire.Event {
	return wire.Event{Version: version, Op: wire.EventPut, Key: []byte("k"), More: more}
}

// watchUntil tells of the events of a watch until stop says so.
func watchUntil(t *testing.T, c *client.Client, from client.Position, stop func(client.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // without a deadline: Config.Timeout is for each page
	defer cancel()
	defer time.AfterFunc(30*time.Second, cancel).Stop()
	for e, err := range c.Watch(ctx, nil, client.WatchOptions{From: from}) {
		if err != nil {
			t.Fatal(err)
		}
		if stop(e) {
			return
		}
	}
}

// What a node did while no client could ask where it is, is told as a gap: at the
// beginning of a watch, and where its position has no place for the node.
func TestFleetWatchBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, true)
		var away atomic.Bool
		away.Store(true)
		nodes[1].Connect = func(context.Context) error {
			if away.Load() {
				return errors.New("nobody")
			}
			return nil
		}
		watchedBy(nodes[0], 7, pages(map[uint64][]wire.Event{7: {putEvent(8, false)}}))
		watchedBy(nodes[1], 70, pages(map[uint64][]wire.Event{70: {putEvent(80, false)}}))
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 500*time.Millisecond, 300*time.Millisecond })
		var kept client.Position
		var told []client.EventOp
		watchUntil(t, c, client.Position{}, func(e client.Event) bool {
			if e.Node == "n1" {
				kept = e.Position
				away.Store(false)
				return e.Op != client.EventPut // n1 could be asked all the time
			}
			told = append(told, e.Op)
			return e.Op == client.EventPut
		})
		if len(told) != 2 || told[0] != client.EventSkip {
			t.Errorf("of the node that was away: %v", told)
		}
		told = nil
		watchUntil(t, c, kept, func(e client.Event) bool {
			if e.Node == "n2" {
				told = append(told, e.Op)
			}
			return e.Node == "n2" && e.Op == client.EventPut
		})
		if len(told) != 2 || told[0] != client.EventSkip {
			t.Errorf("from a position without the node: %v", told)
		}
	})
}

// A batch whose rest does not come, because its node is away, is not told as one
// with the events of other nodes.
func TestFleetWatchTornBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 2, true)
		watchedBy(nodes[0], 7, func(from uint64) []wire.Event { return []wire.Event{putEvent(from+1, false)} }) // without end
		watchedBy(nodes[1], 70, pages(map[uint64][]wire.Event{70: {putEvent(80, true)}, 80: {putEvent(81, false)}}))
		var away atomic.Bool
		rest := nodes[1].OnRequest
		nodes[1].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type == wire.TypeWatch && away.Load() {
				return []byte{}, true // never answered
			}
			return rest(h, msg)
		}
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 500*time.Millisecond, 300*time.Millisecond })
		open, torn, whole := "", false, false
		watchUntil(t, c, client.Position{}, func(e client.Event) bool {
			if e.Node == "n2" && e.More {
				away.Store(true)
			}
			if e.Op == client.EventSkip {
				torn = true
				away.Store(false)
				open = ""
				return false
			}
			if open != "" && e.Node != open {
				t.Errorf("an event of %s amid a batch of %s", e.Node, open)
			}
			if open = ""; e.More {
				open = e.Node
			}
			whole = whole || e.Node == "n2" && !e.More
			return whole || t.Failed()
		})
		if !torn && !t.Failed() {
			t.Error("nothing was torn: the test shows nothing")
		}
	})
}
