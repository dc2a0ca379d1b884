package admin_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// fakePages is a node that answers documents in parts of 10 bytes and keeps as many as a
// node does. forget is asked before a further part: it says whether the document is gone.
func fakePages(t *testing.T, forget func(kind wire.DocumentKind) bool, fresh func(m wire.Document) string) *clienttest.Node {
	node := clienttest.Cluster(t, 1, true)[0]
	var mu sync.Mutex
	texts := map[uint32]string{}
	last := uint32(1000)
	node.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		kind := wire.KindOf(wire.Body(msg))
		if h.Type != wire.TypeDocument || kind != wire.DocumentStats && kind < wire.AdminRotate {
			return node.Answer(h, msg)
		}
		m, err := wire.ParseDocument(wire.Body(msg))
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		serial := m.Serial
		if serial == 0 {
			last++
			serial = last
			texts[serial] = fresh(m)
			delete(texts, serial-4)
		}
		text, ok := texts[serial]
		var out []byte
		if !ok || m.Serial != 0 && forget(kind) {
			out = wire.AppendError(nil, h.Type, h.ID, wire.StatusBadRequest, "ask anew")
		} else {
			part := text[m.From:min(int(m.From)+10, len(text))]
			out = wire.AppendDocumentReply(nil, h.ID, wire.DocumentReply{Total: uint32(len(text)), Offset: m.From, Serial: serial, Data: []byte(part)})
		}
		wire.SetCredits(out, 1)
		return out, true
	}
	return node
}

func never(wire.DocumentKind) bool { return false }

// Calls that read documents at the same time, over one session, get what they have asked
// for, whole.
func TestPagesOfOneCall(t *testing.T) {
	count := 0
	node := fakePages(t, never, func(m wire.Document) string {
		if m.Kind == wire.DocumentStats {
			count++
			return strings.Repeat(string(rune('a'+count%26)), 100)
		}
		return strings.Repeat(string(m.Argument), 100)
	})
	c := dialFakes(t, []*clienttest.Node{node}, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := string(rune('a' + i))
			for range 20 {
				got, err := admin.Of(c).Do(t.Context(), "n1", wire.AdminStatus, name)
				if err != nil || string(got) != strings.Repeat(name, 100) {
					t.Errorf("admin %s: %s, %v", name, got, err)
					return
				}
				all, err := admin.Of(c).Stats(t.Context())
				if s := string(all.Nodes["n1"].Server); err != nil || s != strings.Repeat(s[:1], 100) {
					t.Errorf("stats: %s, %v", s, err)
					return
				}
				if v, err := admin.Of(c).Cluster(t.Context()); err != nil || len(v.Nodes) != 1 {
					t.Errorf("cluster: %+v, %v", v, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestForgottenDocument: a document that the server has forgotten is asked for anew, but
// for what has changed something: that may not be done twice.
func TestForgottenDocument(t *testing.T) {
	left, made := 3, 0
	node := fakePages(t, func(wire.DocumentKind) bool { left--; return left >= 0 }, func(wire.Document) string {
		made++
		return strings.Repeat("x", 30)
	})
	c := dialFakes(t, []*clienttest.Node{node}, nil)
	if text, err := admin.Of(c).Do(t.Context(), "n1", wire.AdminTenants, ""); err != nil || len(text) != 30 || made != 4 {
		t.Errorf("%s, %v, asked for %d times", text, err, made)
	}
	left, made = 1, 0
	if _, err := admin.Of(c).Do(t.Context(), "n1", wire.AdminRevoke, "bob"); !errors.Is(err, client.ErrOutcomeUnknown) || made != 1 {
		t.Errorf("what may not be done twice: %v, asked for %d times", err, made)
	}
	left, made = 1<<30, 0
	if _, err := admin.Of(c).Do(t.Context(), "n1", wire.AdminTenants, ""); !errors.Is(err, client.ErrUnavailable) || made != session.DocumentTries {
		t.Errorf("a server that forgets everything: %v, asked for %d times", err, made)
	}
}
