package client

import (
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// The server keeps one text of a kind for each session, of which calls read page
// by page. Calls that come together get what they have asked for, whole.
func TestPagesOfOneCall(t *testing.T) {
	nodes := fakeCluster(t, 1, true)
	var mu sync.Mutex
	var text [2]string // the answer that is being read; of Admin and of Stats
	const part = 10
	page := func(kind int, offset uint32, fresh func() string) (uint32, []byte) {
		mu.Lock()
		defer mu.Unlock()
		if offset == 0 {
			text[kind] = fresh()
		}
		whole := text[kind]
		from := min(int(offset), len(whole))
		return uint32(len(whole)), []byte(whole[from:min(len(whole), from+part)])
	}
	count := 0
	nodes[0].onRequest = func(h wire.Header, msg []byte) (out []byte, ok bool) {
		switch h.Type {
		case wire.TypeAdmin:
			m, err := wire.ParseAdmin(wire.Body(msg))
			if err != nil {
				panic(err)
			}
			total, data := page(0, m.Offset, func() string { return strings.Repeat(string(m.Name), 100) })
			out = wire.AppendAdminReply(nil, h.ID, wire.AdminReply{Total: total, Offset: m.Offset, Data: data})
		case wire.TypeStats:
			m, err := wire.ParseStats(wire.Body(msg))
			if err != nil {
				panic(err)
			}
			total, data := page(1, m.Offset, func() string { count++; return strings.Repeat(string(rune('a'+count%26)), 100) })
			out = wire.AppendStatsReply(nil, h.ID, wire.StatsReply{Total: total, Offset: m.Offset, Data: data})
		default:
			return nodes[0].answer(h, msg)
		}
		wire.SetCredits(out, 1)
		return out, true
	}
	c := dialFakes(t, nodes, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := string(rune('a' + i))
			for range 20 {
				got, err := c.Admin(t.Context(), "n1", wire.AdminStatus, name)
				if err != nil || string(got) != strings.Repeat(name, 100) {
					t.Errorf("admin %s: %s, %v", name, got, err)
					return
				}
				all, err := c.Stats(t.Context())
				if s := string(all.Nodes["n1"].Server); err != nil || s != strings.Repeat(s[:1], 100) {
					t.Errorf("stats: %s, %v", s, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
