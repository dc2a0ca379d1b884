package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// copying has nodes answer questions about copies: of each node and question what answer says; nil: it is refused with status.
func copying(nodes []*clienttest.Node, answer func(node string, q wire.CopyQuestion) (text []byte, refused wire.Status)) {
	var mu sync.Mutex
	for _, n := range nodes {
		n.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type != wire.TypeDocument || wire.KindOf(wire.Body(msg)) != wire.AdminCopy {
				return n.Answer(h, msg)
			}
			mu.Lock()
			defer mu.Unlock()
			m, err := wire.ParseDocument(wire.Body(msg))
			if err != nil {
				panic(err)
			}
			q, err := wire.ParseCopyQuestion(m.Argument)
			if err != nil {
				panic(err)
			}
			text, status := answer(n.ID, q)
			out := wire.AppendDocumentReply(nil, h.ID, wire.DocumentReply{Total: uint32(len(text)), Serial: 1, Data: text})
			if text == nil {
				out = wire.AppendError(nil, h.Type, h.ID, status, "")
			}
			wire.SetCredits(out, 1)
			return out, true
		}
	}
}

func answerOf(a wire.CopyAnswer) []byte {
	text, err := json.Marshal(&a)
	if err != nil {
		panic(err)
	}
	return text
}

func pageOf(more bool, keys ...string) []byte {
	b := wire.BeginCopyPage(nil)
	for _, key := range keys {
		b = wire.AppendCopyRecord(b, &wire.CopyRecord{Key: []byte(key), Size: 1, Data: []byte("v")})
	}
	return wire.EndCopyPage(b, len(keys), more)
}

// TestCopyGroup: a copy is opened by whoever leads, also if another one was asked first, or is busy; pages follow each other, or are none; and a copy that is gone is lost.
func TestCopyGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.Live(t, 3, 0)
		id := s.Map().Replication.Groups[0].ID
		busy, page, refused := 2, pageOf(true, "a", "b"), wire.StatusNotFound
		copying(s.Nodes, func(node string, q wire.CopyQuestion) ([]byte, wire.Status) {
			switch {
			case q.Do == wire.CopyOpen && node != "n3":
				return answerOf(wire.CopyAnswer{Group: q.Group, State: wire.CopyNotLeader, Leader: "n3"}), 0
			case q.Do == wire.CopyOpen && busy > 0:
				busy--
				return answerOf(wire.CopyAnswer{Group: q.Group, State: wire.CopyBusy, Why: "wait"}), 0
			case q.Do == wire.CopyOpen:
				return answerOf(wire.CopyAnswer{Group: q.Group, State: wire.CopyOpened, ID: 7, Index: 9, Term: 2, Shards: []uint16{0, 4}}), 0
			case node != "n3" || q.ID != 7:
				t.Errorf("%s is asked %s", node, q.String())
			case q.Do == wire.CopyRead:
				return page, refused
			}
			return answerOf(wire.CopyAnswer{State: wire.CopyClosed}), 0
		})
		a := admin.Of(dialFakes(t, s.Nodes, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := a.CopyGroup(ctx, id)
		if err != nil || c.Node != "n3" || c.Index != 9 || c.Term != 2 || len(c.Shards) != 2 || busy != 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		if records, more, err := c.Page(ctx, 0, nil, 0); err != nil || !more || len(records) != 2 || string(records[1].Key) != "b" {
			t.Error(records, more, err)
		}
		for _, after := range []string{"a", "b"} { // what it has had already
			if _, _, err := c.Page(ctx, 0, []byte(after), 0); !errors.Is(err, client.ErrProtocol) {
				t.Errorf("a page that goes back to a, behind %s: %v", after, err)
			}
		}
		if _, _, err := c.Page(ctx, 0, []byte("a"), 1); !errors.Is(err, client.ErrProtocol) {
			t.Errorf("a page that is no piece: %v", err)
		}
		page = page[:20]
		if _, _, err := c.Page(ctx, 0, nil, 0); !errors.Is(err, client.ErrProtocol) {
			t.Errorf("half a page: %v", err)
		}
		page = nil
		if _, _, err := c.Page(ctx, 0, nil, 0); !errors.Is(err, admin.ErrCopyLost) {
			t.Errorf("a copy that is gone: %v", err)
		}
		refused = wire.StatusCorrupt
		if _, _, err := c.Page(ctx, 0, nil, 0); !errors.Is(err, client.ErrCorrupt) || errors.Is(err, admin.ErrCopyLost) {
			t.Errorf("a disk that is damaged: %v", err)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		if _, err := a.CopyGroup(ctx, 9999); !errors.Is(err, client.ErrOptions) {
			t.Errorf("a group that is not there: %v", err)
		}
	})
}

// TestCopyGroupNowhere: without a leader it ends with the context, and says why; where nothing can be copied it ends at once.
func TestCopyGroupNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			nodes  func() []*clienttest.Node
			text   []byte
			status wire.Status
			want   error
			say    string
		}{
			"nobody leads":      {text: []byte(`{"group":G,"state":"not-leader"}`), want: client.ErrUnavailable},
			"busy for ever":     {text: []byte(`{"group":G,"state":"busy","why":"the disk"}`), want: client.ErrUnavailable, say: "the disk"},
			"nonsense":          {text: []byte(`{"group":G,"state":"x"}`), want: client.ErrUnavailable, say: "open copy"},
			"of older versions": {status: wire.StatusUnsupported, want: client.ErrUnsupported},
			"without the right": {status: wire.StatusDenied, want: client.ErrDenied},
			"without a map":     {nodes: func() []*clienttest.Node { return clienttest.Cluster(t, 3, false) }, want: client.ErrNoMap},
			"without replicas":  {nodes: func() []*clienttest.Node { return clienttest.Cluster(t, 3, true) }, want: client.ErrUnsupported},
		} {
			id, nodes := uint32(1), []*clienttest.Node(nil)
			if tc.nodes != nil {
				nodes = tc.nodes()
			} else {
				s := clienttest.Live(t, 3, 0)
				id, nodes = s.Map().Replication.Groups[0].ID, s.Nodes
				text := tc.text
				if text != nil {
					text = []byte(strings.Replace(string(text), "G", "1", 1))
				}
				copying(nodes, func(string, wire.CopyQuestion) ([]byte, wire.Status) { return text, tc.status })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := admin.Of(dialFakes(t, nodes, nil)).CopyGroup(ctx, id)
			cancel()
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.say) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			}
		}
	})
}
