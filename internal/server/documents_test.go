package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// pagedServer has short replies; its statistics are "0" and their number 29,999
// times, so that they take three parts, and what it says of its status is what was asked, in
// capitals.
func pagedServer(t *testing.T) *Server {
	cfg := testConfig()
	cfg.ReplySize = session.MinReplySize
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	srv.makers[wire.DocumentStats] = func(context.Context, handle.Asker, []byte) ([]byte, error) {
		made++
		return []byte("0" + strings.Repeat(fmt.Sprint(made), 29999)), nil
	}
	srv.makers[wire.AdminStatus] = func(_ context.Context, _ handle.Asker, argument []byte) ([]byte, error) {
		return bytes.ToUpper(argument), nil
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Shutdown(context.Background()) })
	return srv
}

// ask sends one message of a document.
func (p *peer) ask(m wire.Document) (wire.DocumentReply, error) {
	p.t.Helper()
	body, err := p.call(func(id uint64) []byte { return wire.AppendDocument(nil, id, m) })
	if err != nil {
		return wire.DocumentReply{}, err
	}
	r, err := wire.ParseDocumentReply(bytes.Clone(body))
	if err != nil {
		p.t.Fatal(err)
	}
	return r, nil
}

// TestDocumentsInParts: documents are read side by side, each is made once, and one
// that is read, or that four others have driven out, is there no more.
func TestDocumentsInParts(t *testing.T) {
	p := dial(t, pagedServer(t), peerOptions{})
	begin := func(want string) wire.DocumentReply {
		t.Helper()
		r, err := p.ask(wire.Document{Kind: wire.DocumentStats})
		if err != nil || r.Total != 30000 || r.Offset != 0 || r.Wants || string(r.Data[:2]) != "0"+want || len(r.Data) < 3000 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	one, two := begin("1"), begin("2")
	if one.Serial == two.Serial {
		t.Fatalf("both have the serial %d", one.Serial)
	}
	read := func(r wire.DocumentReply, digit string) {
		t.Helper()
		text := string(r.Data)
		for len(text) < 30000 {
			next, err := p.ask(wire.Document{Kind: wire.DocumentStats, Serial: r.Serial, From: uint32(len(text))})
			if err != nil || next.Serial != r.Serial || int(next.Offset) != len(text) || next.Total != 30000 {
				t.Fatalf("%+v, %v", next, err)
			}
			text += string(next.Data)
		}
		if text != "0"+strings.Repeat(digit, 29999) {
			t.Errorf("the document of %s is another one", digit)
		}
		_, err := p.ask(wire.Document{Kind: wire.DocumentStats, Serial: r.Serial, From: 1})
		wantStatus(t, err, wire.StatusBadRequest)
	}
	read(two, "2")
	read(one, "1")
	three := begin("3")
	_, err := p.ask(wire.Document{Kind: wire.DocumentMap, Serial: three.Serial, From: 1}) // of another kind
	wantStatus(t, err, wire.StatusBadRequest)
	for n := range handle.MaxDocuments - 1 {
		begin(fmt.Sprint(4 + n))
	}
	read(three, "3")
	seven := begin("7")
	for range handle.MaxDocuments {
		if _, err := p.ask(wire.Document{Kind: wire.DocumentStats}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = p.ask(wire.Document{Kind: wire.DocumentStats, Serial: seven.Serial, From: 1})
	wantStatus(t, err, wire.StatusBadRequest)
	_, err = p.ask(wire.Document{Kind: wire.DocumentView})
	wantStatus(t, err, wire.StatusUnsupported) // a server that is alone
}

func refused(_ wire.DocumentReply, err error) error { return err }

// TestArguments: an argument comes in order, or not at all, and one at a time.
func TestArguments(t *testing.T) {
	p := dial(t, pagedServer(t), peerOptions{})
	begin := func() wire.DocumentReply {
		t.Helper()
		r, err := p.ask(wire.Document{Kind: wire.AdminStatus, Total: 9, Argument: []byte("abc")})
		if err != nil || !r.Wants {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	part := func(serial, total, offset uint32, text string) (wire.DocumentReply, error) {
		return p.ask(wire.Document{Kind: wire.AdminStatus, Serial: serial, Total: total, Offset: offset, Argument: []byte(text)})
	}
	r := begin()
	_, err := p.ask(wire.Document{Kind: wire.AdminStatus, Serial: r.Serial}) // there is no answer yet
	wantStatus(t, err, wire.StatusBadRequest)
	if r, err := part(r.Serial, 9, 3, "def"); err != nil || !r.Wants {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := part(r.Serial, 9, 6, "ghi"); err != nil || r.Wants || string(r.Data) != "ABCDEFGHI" {
		t.Errorf("%+v, %v", r, err)
	}
	for what, f := range map[string]func(serial uint32) error{
		"a part twice":           func(serial uint32) error { return refused(part(serial, 9, 2, "c")) },
		"a gap":                  func(serial uint32) error { return refused(part(serial, 9, 4, "e")) },
		"another length":         func(serial uint32) error { return refused(part(serial, 10, 3, "d")) },
		"a document of the past": func(serial uint32) error { return refused(part(serial-1, 9, 3, "d")) },
		"another kind": func(serial uint32) error {
			return refused(p.ask(wire.Document{Kind: wire.AdminTenants, Serial: serial, Total: 9, Offset: 3, Argument: []byte("def")}))
		},
		"another argument meanwhile": func(serial uint32) error {
			begin()
			return refused(part(serial, 9, 3, "def"))
		},
	} {
		if err := f(begin().Serial); wire.StatusOf(err) != wire.StatusBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = p.ask(wire.Document{Kind: wire.AdminStatus, Total: wire.MaxAdminName + 1, Argument: []byte("abc")})
	wantStatus(t, err, wire.StatusTooLarge)
	_, err = p.ask(wire.Document{Kind: wire.DocumentStats, Total: 1, Argument: []byte("a")})
	wantStatus(t, err, wire.StatusTooLarge)
	_, err = p.ask(wire.Document{Kind: wire.MapPrepare, Total: cluster.MaxMap + 1, Argument: []byte("a")})
	wantStatus(t, err, wire.StatusTooLarge)
	for _, kind := range []wire.DocumentKind{0, 8, 16, wire.MaxDocumentKind + 1, 1<<16 - 1} {
		_, err = p.ask(wire.Document{Kind: kind})
		wantStatus(t, err, wire.StatusUnsupported)
	}
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}
