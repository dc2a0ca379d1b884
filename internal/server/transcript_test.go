package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestTranscripts plays the conversations in testdata/transcripts against a
// real node over a real fabric. Each shows, command by command, the messages
// that go to the server (→) and come back (←): the protocol as it is spoken.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		tr := &transcript{peers: map[string]*peer{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			tr.t, tr.out = t, &strings.Builder{}
			tr.run(d)
			return tr.out.String()
		})
	})
}

type transcript struct {
	t     *testing.T
	srv   *Server
	peers map[string]*peer
	at    wire.Cursor // of the last watch
	out   *strings.Builder
}

func (tr *transcript) printf(format string, args ...any) { fmt.Fprintf(tr.out, format+"\n", args...) }

// sent and got print one message.
func (tr *transcript) sent(msg []byte) {
	h, err := wire.ParseHeader(msg)
	if err != nil {
		tr.printf("→ %d bytes: %v", len(msg), err)
		return
	}
	tr.printf("→ %v", h)
}

func (tr *transcript) got(h wire.Header, body []byte) {
	text := ""
	if h.Status != wire.StatusOK && len(body) > 0 {
		text = fmt.Sprintf(" %q", body)
	}
	tr.printf("← %v%s", h, text)
}

// call sends a message and prints it and its reply.
func (tr *transcript) call(p *peer, encode func(id uint64) []byte) []byte {
	p.t = tr.t
	id := p.id()
	msg := encode(id)
	tr.sent(msg)
	p.send(msg)
	h, body, err := p.await(id)
	if err != nil {
		tr.end(p)
		return nil
	}
	tr.got(h, body)
	if h.Status != wire.StatusOK {
		return nil
	}
	return body
}

// end prints how a connection ended: a Goodbye if one came, and the class of
// the fabric's error.
func (tr *transcript) end(p *peer) {
	p.t = tr.t
	p.dead()
	p.poll(func() bool { return false })
	for _, m := range p.replies {
		if h, err := wire.ParseHeader(m); err == nil && h.Type == wire.TypeGoodbye {
			tr.got(h, wire.Body(m))
		}
	}
	for _, class := range []error{rdma.ErrAccess, rdma.ErrReceiverNotReady, rdma.ErrPeerGone, rdma.ErrProtocol, rdma.ErrClosed} {
		if errors.Is(p.qp.Err(), class) {
			tr.printf("✕ %v", class)
			return
		}
	}
	tr.printf("✕ %v", p.qp.Err())
}

func arg(d *datadriven.TestData, name string) []byte {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) > 0 {
			return []byte(a.Vals[0])
		}
	}
	return nil
}

func (tr *transcript) run(d *datadriven.TestData) {
	switch d.Cmd {
	case "start":
		tr.srv = startServer(tr.t, func(c *Config) {
			c.Secret = arg(d, "secret")
			c.InitialCredits = 2
			c.Linger = 20 * time.Second
			if d.HasArg("idle") {
				c.Keepalive, c.Idle = 20*time.Millisecond, 100*time.Millisecond
			}
		})
		return
	case "shutdown":
		// Clients hang up when they are told.
		done := make(chan error, 1)
		go func() { done <- tr.srv.Shutdown(context.Background()) }()
		for _, p := range tr.peers {
			select {
			case <-p.qp.Done():
			default:
				p.goodbye()
				p.qp.Disconnect()
				tr.end(p)
			}
		}
		tr.printf("shutdown: %v", <-done)
		return
	case "block":
		tr.srv.BlockHandlers()
		return
	case "unblock":
		tr.srv.UnblockHandlers()
		return
	}
	name := d.CmdArgs[0].Key
	if d.Cmd == "dial" {
		p, err := tryDial(tr.t, tr.srv, peerOptions{secret: arg(d, "secret"), noHello: true})
		if err != nil {
			tr.printf("✕ %v", errorClass(err))
			return
		}
		tr.peers[name] = p
		tr.printf("connected: %d bytes of private data there, %d back", len(p.connect), len(p.accept))
		return
	}
	p := tr.peers[name]
	tr.request(d, p)
}

// errorClass is what is the same on every run.
func errorClass(err error) string {
	if errors.Is(err, rdma.ErrRejected) {
		return "rejected: " + wire.StatusOf(err).String()
	}
	return err.Error()
}

func (tr *transcript) request(d *datadriven.TestData, p *peer) {
	key, value := arg(d, "key"), arg(d, "value")
	switch d.Cmd {
	case "hello":
		body := tr.call(p, func(id uint64) []byte {
			m := wire.Hello{ReplySize: peerSize, Name: []byte(d.CmdArgs[0].Key)}
			copy(m.ClientID[:], "client of "+d.CmdArgs[0].Key)
			msg := wire.AppendHello(nil, id, m)
			wire.SetCredits(msg, 2)
			wire.SignHello(msg, arg(d, "secret"), p.connect, p.accept)
			return msg
		})
		if body != nil {
			p.wel, _ = wire.ParseWelcome(bytes.Clone(body))
			tr.printf("  lease %v, beat %v, keepalive %v, %d shards, requests of up to %d bytes", p.wel.Lease, p.wel.Beat, p.wel.Keepalive, p.wel.Shards, p.wel.RequestSize)
		}
	case "view":
		if body := tr.call(p, func(id uint64) []byte { return wire.AppendViewRequest(nil, id, wire.ViewRequest{}) }); body != nil {
			v, _ := wire.ParseViewReply(body)
			for i := range v.Count() {
				r := v.Region(i)
				tr.printf("  region %d: %v, %d MiB at place %d", r.ID, layout.RegionKind(r.Kind), r.Length>>20, r.Base)
			}
		}
	case "read":
		tr.read(p)
	case "put":
		if tr.terms(d) != (wire.Terms{}) {
			tr.written(p, putOf(string(key), string(value), tr.terms(d)))
			return
		}
		tr.call(p, func(id uint64) []byte {
			msg := wire.AppendPut(nil, id, wire.Put{Key: key, Value: value})
			if d.HasArg("want") {
				wire.SetFlags(msg, wire.FlagWantCredits)
			}
			return msg
		})
	case "put-large":
		var n int
		d.ScanArgs(tr.t, "size", &n)
		sum := checksum(p.sink()[:n])
		if d.HasArg("torn") {
			sum++
		}
		tr.call(p, func(id uint64) []byte {
			return wire.AppendPutLarge(nil, id, wire.PutLarge{
				Key: key, ValueLen: uint64(n), Checksum: sum, RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
			})
		})
	case "get":
		body := tr.call(p, func(id uint64) []byte { return wire.AppendGet(nil, id, wire.Get{Key: key, MaxInline: 1 << 14}) })
		if body == nil {
			return
		}
		r, _ := wire.ParseGetReply(body)
		tr.printf("  %v, %d bytes", r.Kind, r.ValueLen)
		if r.Kind == wire.GetHeld {
			item := bytes.Clone(p.readPlace(r.Hold.Place, int(r.Hold.Size)))
			v, err := layout.ParseItem(item, p.wel.Incarnation, layout.Place(r.Hold.Place))
			tr.printf("⇒ READ of hold %d: item of key %q, %d bytes, %v", r.Hold.ID, v.Key(), v.ValLen, err)
		}
	case "release":
		tr.call(p, func(id uint64) []byte { return wire.AppendRelease(nil, id, wire.Release{ID: 1}) })
	case "exists":
		tr.call(p, func(id uint64) []byte { return wire.AppendExists(nil, id, wire.Key{Key: key}) })
	case "delete":
		if tr.terms(d) != (wire.Terms{}) {
			tr.written(p, deleteOf(string(key), tr.terms(d)))
			return
		}
		if body := tr.call(p, func(id uint64) []byte { return wire.AppendDelete(nil, id, wire.Delete{Key: key}) }); body != nil {
			r, _ := wire.ParseWriteReply(body)
			tr.printf("  existed: %v", r.Existed)
		}
	case "scan":
		if body := tr.call(p, func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{Prefix: arg(d, "prefix"), Limit: 2}) }); body != nil {
			page, _ := wire.ParseScanReply(body)
			for e := range page.Entries {
				tr.printf("  %q: %d bytes", e.Key, e.ValueLen)
			}
			tr.printf("  more: %v", page.More)
		}
	case "ping":
		tr.call(p, func(id uint64) []byte {
			m := wire.Ping{}
			if d.HasArg("return") {
				var n int
				d.ScanArgs(tr.t, "return", &n)
				m.Return = uint16(n)
			}
			return wire.AppendPing(nil, id, m)
		})
	case "increment":
		var by int64
		d.ScanArgs(tr.t, "by", &by)
		tr.written(p, incrementOf(string(key), by, tr.terms(d)))
	case "touch":
		var ttl int
		d.ScanArgs(tr.t, "ttl", &ttl)
		tr.written(p, touchOf(string(key), time.Duration(ttl)*time.Second))
	case "batch":
		var parts []wire.BatchPart
		for _, line := range strings.Fields(d.Input) {
			k, v, put := strings.Cut(line, "=")
			parts = append(parts, wire.BatchPart{Key: []byte(k), Value: []byte(v), Delete: !put})
		}
		tr.written(p, namedBatch(tr.terms(d).ID, parts...))
	case "watch":
		m := wire.Watch{From: tr.at, Prefix: arg(d, "prefix"), Values: true, WaitMillis: 20_000}
		if d.HasArg("now") {
			m.From = wire.Cursor{}
		}
		if d.HasArg("lost") {
			m.From.Incarnation++
		}
		if d.HasArg("wait") {
			p.waiting = p.id()
			msg := wire.AppendWatch(nil, p.waiting, m)
			tr.sent(msg)
			p.t = tr.t
			p.send(msg)
			return
		}
		if body := tr.call(p, func(id uint64) []byte { return wire.AppendWatch(nil, id, m) }); body != nil {
			tr.events(body)
		}
	case "report":
		tr.call(p, func(id uint64) []byte {
			return wire.AppendReport(nil, id, wire.Touches(nil).Append(wire.Touch{Hash: 1, Count: 2}), []wire.Damage{{Key: key}})
		})
	case "document":
		n := func(name string) (v uint32) {
			if d.HasArg(name) {
				d.ScanArgs(tr.t, name, &v)
			}
			return v
		}
		body := tr.call(p, func(id uint64) []byte {
			return wire.AppendDocument(nil, id, wire.Document{
				Kind: wire.DocumentKind(n("kind")), Serial: n("serial"), Total: n("total"), Offset: n("offset"), From: n("from"), Argument: arg(d, "data"),
			})
		})
		if body != nil {
			m, _ := wire.ParseDocumentReply(body)
			tr.printf("  document %d, %d bytes at %d of %d, wants more: %v", m.Serial, len(m.Data), m.Offset, m.Total, m.Wants)
		}
	case "send": // a request whose reply is awaited later, or never comes
		p.waiting = p.id()
		msg := wire.AppendPut(nil, p.waiting, wire.Put{Key: key, Value: value})
		tr.sent(msg)
		p.t = tr.t
		p.send(msg)
	case "await":
		p.t = tr.t
		if h, body, err := p.await(p.waiting); err == nil {
			tr.got(h, body)
			if h.Type == wire.TypeWatch.Reply() && h.Status == wire.StatusOK {
				tr.events(body)
			}
		} else {
			tr.end(p)
		}
	case "garbage":
		p.t = tr.t
		msg := []byte(d.Input)
		tr.sent(msg)
		p.send(msg)
		tr.end(p)
	case "end":
		tr.end(p)
	default:
		tr.t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
}

// terms reads the terms of a write. A version is told by its number in the life
// of the node.
func (tr *transcript) terms(d *datadriven.TestData) (m wire.Terms) {
	n := func(name string) (v uint64) {
		if d.HasArg(name) {
			d.ScanArgs(tr.t, name, &v)
		}
		return v
	}
	m.ID = wire.RequestID{Slot: uint16(n("slot")), Seq: n("seq"), AgeMillis: uint32(n("age"))}
	switch {
	case d.HasArg("if-absent"):
		m.If = wire.CondAbsent
	case d.HasArg("if-exists"):
		m.If = wire.CondExists
	case d.HasArg("if-version"):
		m.If, m.IfVersion = wire.CondVersion, uint64(layout.MakeVersion(2, n("if-version")))
	}
	return m
}

// written sends a write and prints what its reply says.
func (tr *transcript) written(p *peer, encode func(uint64) []byte) {
	if body := tr.call(p, encode); body != nil {
		m, _ := wire.ParseWriteReply(body)
		v := layout.Version(m.Version)
		tr.printf("  applied: %v, existed: %v, version %d.%d, number %d", m.Applied, m.Existed, v.Epoch(), v.Sequence(), m.Number)
	}
}

// events prints the reply to a watch and keeps its cursor.
func (tr *transcript) events(body []byte) {
	m, _ := wire.ParseWatchReply(body)
	for e := range m.Events {
		more := ""
		if e.More {
			more = ", the batch goes on"
		}
		tr.printf("  %v %s=%s at %d%s", e.Op, e.Key, e.Value, layout.Version(e.Version).Sequence(), more)
	}
	tr.at = m.Next
	tr.printf("  skipped: %v, next %d", m.Skipped, layout.Version(m.Next.Version).Sequence())
}

// read READs the header page of the first region, with what any session of the
// server could have told.
func (tr *transcript) read(p *peer) {
	p.t = tr.t
	reg, _ := tr.srv.main.Regions.Wire(0, tr.srv.main.Store.View().Regions[0])
	b, err := p.read(reg.Addr, reg.RKey, layout.PageSize)
	if err != nil {
		tr.printf("⇒ READ of region 0 refused")
		tr.end(p)
		return
	}
	h, err := layout.ParseRegionHeader(b)
	tr.printf("⇒ READ of region 0: %v, %d shards, %v", h.Kind, h.Shards, err)
}
