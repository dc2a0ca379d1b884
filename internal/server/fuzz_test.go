package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// FuzzRequest feeds one arbitrary message to a session, then a Ping: whatever
// the first was, the server neither panics nor hangs nor leaks, and either
// answers or ends the session.
func FuzzRequest(f *testing.F) {
	key := []byte("key")
	srv := startServer(f, func(c *Config) { c.MaxPoll = time.Millisecond })
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: 1 << 16})
	wire.SignHello(hello, nil, []byte("c"), []byte("a"))
	for _, msg := range [][]byte{
		hello,
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key}),
		wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, ValueLen: 1 << 16, RKey: 1, Addr: 4096}),
		wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, Checksum: 0x2d06800538d394c2}),
		wire.AppendDelete(nil, 1, wire.Delete{Key: key}),
		wire.AppendGet(nil, 1, wire.Get{Key: key, MaxInline: 100}),
		wire.AppendGet(nil, 1, wire.Get{Key: key}),
		wire.AppendRelease(nil, 1, wire.Release{ID: 1}),
		wire.AppendExists(nil, 1, wire.Key{Key: key}),
		wire.AppendScan(nil, 1, wire.Scan{Prefix: []byte("k"), Limit: 2}),
		documentOf(wire.DocumentStats, "")(1),
		wire.AppendViewRequest(nil, 1, wire.ViewRequest{}),
		wire.AppendGroupInfoRequest(nil, 1, wire.GroupInfoRequest{Group: 1}),
		wire.AppendPing(nil, 1, wire.Ping{Return: 3}),
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key, Terms: wire.Terms{If: wire.CondVersion, IfVersion: 9, TTLMicros: 5}}),
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key, Terms: wire.Terms{ID: wire.RequestID{Slot: 1, Seq: 2, AgeMillis: 3}}}),
		wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateIncrement, Delta: 1, Key: []byte("n")}),
		wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateTouch, Key: key, Terms: wire.Terms{TTLMicros: 1 << 40}}),
		wire.AppendBatch(nil, 1, wire.RequestID{}, 1, wire.AppendBatchPart(nil, wire.BatchPart{Key: key, Value: key})),
		wire.AppendBatch(nil, 1, wire.RequestID{}, 2, wire.AppendBatchPart(wire.AppendBatchPart(nil, wire.BatchPart{Key: key}), wire.BatchPart{Key: []byte("z"), Delete: true})),
		wire.AppendBatchLarge(nil, 1, wire.BatchLarge{Count: 3, Length: 1 << 10, RKey: 1, Addr: 4096}),
		wire.AppendWatch(nil, 1, wire.Watch{Prefix: key}),
		documentOf(wire.AdminRotate, "status")(1),
		wire.AppendDocument(nil, 1, wire.Document{Kind: wire.MapPrepare, Total: 9, Argument: key}),
		wire.AppendWatch(nil, 1, wire.Watch{From: wire.Cursor{Incarnation: srv.main.Incarnation, Version: 1 << 40}, WaitMillis: 5, Values: true}),
		wire.AppendReport(nil, 1, wire.Touches(nil).Append(wire.Touch{Hash: 1, Count: 2}), []wire.Damage{{Shard: 1, Place: 1 << 20, Version: 1 << 40, Key: key}}),
	} {
		f.Add(msg, true)
		f.Add(msg, false)
	}
	p := dial(f, srv, peerOptions{})
	if err := p.put("key", "value"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, msg []byte, open bool) {
		if len(msg) > srv.cfg.RequestSize {
			return // the fabric refuses it
		}
		s, q := deafSession(t, srv, open)
		feed(t, s, q, msg)
		feed(t, s, q, wire.AppendPing(nil, 99, wire.Ping{}))
		alive := !s.Ended()
		answered := len(q.Types) > 0 && q.Types[len(q.Types)-1] == wire.TypePing.Reply()
		if alive != answered {
			t.Errorf("alive %v, Ping answered %v: %v", alive, answered, q.Types)
		}
		endDeaf(t, s, q)
	})
}

// A deafState is how far a deaf session has come.
type deafState int

const (
	deafNew deafState = iota
	deafOpen
	deafEnd
)

// endWithGoodbye has a session end that has not ended, as endDeaf finds it.
func endWithGoodbye(t testing.TB, s *session.Session, q *deafQP) {
	t.Helper()
	feed(t, s, q, wire.AppendReleaseReply(nil, 1)) // no request
	if types := q.Sent(); !s.Ended() || len(types) != 1 || types[0] != wire.TypeGoodbye {
		t.Fatalf("it does not end: %v", types)
	}
	q.Mu.Lock()
	q.Types = nil
	q.Mu.Unlock()
}

// TestEveryTypeInEveryState sends every type of message, whole and with an
// empty body, to a session in every state: what is not in the table below ends
// the session, and nothing panics.
func TestEveryTypeInEveryState(t *testing.T) {
	srv := startServer(t, nil)
	key := []byte("k")
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: 1 << 16})
	wire.SignHello(hello, nil, []byte("c"), []byte("a"))
	whole := map[wire.Type][]byte{
		wire.TypeHello:    hello,
		wire.TypeView:     wire.AppendViewRequest(nil, 1, wire.ViewRequest{}),
		wire.TypePut:      wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key}),
		wire.TypePutLarge: wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, Checksum: checksum(nil)}),
		wire.TypeDelete:   wire.AppendDelete(nil, 1, wire.Delete{Key: key}),
		wire.TypeGet:      wire.AppendGet(nil, 1, wire.Get{Key: key}),
		wire.TypeRelease:  wire.AppendRelease(nil, 1, wire.Release{}),
		wire.TypeExists:   wire.AppendExists(nil, 1, wire.Key{Key: key}),
		wire.TypeScan:     wire.AppendScan(nil, 1, wire.Scan{}),
		wire.TypePing:     wire.AppendPing(nil, 1, wire.Ping{}),

		wire.TypeUpdate:     wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateTouch, Key: key}),
		wire.TypeBatch:      wire.AppendBatch(nil, 1, wire.RequestID{}, 1, wire.AppendBatchPart(nil, wire.BatchPart{Key: key})),
		wire.TypeBatchLarge: wire.AppendBatchLarge(nil, 1, wire.BatchLarge{Checksum: checksum(nil)}),
		wire.TypeWatch:      wire.AppendWatch(nil, 1, wire.Watch{}),
		wire.TypeFetch:      wire.AppendFetch(nil, 1, wire.Fetch{Hold: 1, Length: 8}),
		wire.TypeReport:     wire.AppendReport(nil, 1, nil, nil),
		wire.TypeDocument:   documentOf(wire.AdminRotate, "status")(1),

		wire.TypeGroupInfo: wire.AppendGroupInfoRequest(nil, 1, wire.GroupInfoRequest{Group: 1}),
	}
	for typ := range 256 {
		empty := wire.AppendReleaseReply(nil, 1) // a header and nothing else
		empty[1] = byte(typ)
		for _, msg := range [][]byte{empty, whole[wire.Type(typ)]} {
			for _, state := range []deafState{deafNew, deafOpen, deafEnd} {
				for _, draining := range []bool{false, true} {
					if msg == nil {
						continue
					}
					s, q := deafSession(t, srv, state != deafNew)
					if state == deafEnd {
						endWithGoodbye(t, s, q)
					}
					srv.main.Draining.Store(draining)
					feed(t, s, q, msg)
					srv.main.Draining.Store(false)
					// Whole requests are answered in the state they belong to.
					// While the node drains it refuses them before it looks at
					// their bodies, Hello and Ping excepted.
					isWhole := len(msg) > wire.HeaderSize
					isRequest := whole[wire.Type(typ)] != nil
					if isRequest != wire.Type(typ).IsRequest() {
						t.Fatalf("%v is a request: %v; there is a message of it: %v", wire.Type(typ), !isRequest, isRequest)
					}
					proper := isRequest && state != deafEnd && (state == deafNew) == (wire.Type(typ) == wire.TypeHello)
					refused := draining && typ != int(wire.TypePing) && typ != int(wire.TypeHello)
					answered := proper && (isWhole || refused)
					last := wire.Type(0)
					if len(q.Types) > 0 {
						last = q.Types[len(q.Types)-1]
					}
					switch {
					case answered && last != wire.Type(typ).Reply():
						t.Errorf("type %d in state %v, draining %v: %v instead of its reply", typ, state, draining, last)
					case !answered && state != deafEnd && (!s.Ended() || state == deafOpen && last != wire.TypeGoodbye):
						t.Errorf("type %d in state %v, draining %v: %v instead of Goodbye", typ, state, draining, last)
					case state == deafEnd && len(q.Types) != 0:
						t.Errorf("type %d in state %v: answered %v", typ, state, last)
					}
					endDeaf(t, s, q)
				}
			}
		}
	}
}
