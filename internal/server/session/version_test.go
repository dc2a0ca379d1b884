package session

import (
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A refuser is the handler of sessions whose every request is refused.
type refuser struct{ noHandler }

func (h refuser) Open(*Session) (Conn, wire.Welcome, error) { return h, wire.Welcome{}, nil }
func (refuser) Handle(r *Request)                           { r.Fail(wire.StatusNotFound, "") }
func (refuser) Tick(int64)                                  {}
func (refuser) Cancel()                                     {}
func (refuser) Close()                                      {}

// TestVersionOfReplies: whatever is sent in a session has the version that its two ends have agreed on, also if this program speaks a newer one, or two releases do that come after it: the
// welcome, a reply, a pack and all that is in it, a Goodbye (deaf.QP checks each). A message of another version, or a pack that has one, ends the session.
func TestVersionOfReplies(t *testing.T) {
	put := func(id uint64) []byte { return wire.AppendPut(nil, id, wire.Put{Key: []byte("k"), Value: []byte("v")}) }
	packOf := func(version uint8, of ...uint8) []byte {
		b := wire.BeginPack(nil, 0)
		wire.SetVersion(b, version)
		for i, v := range of {
			one := put(uint64(10 + i))
			wire.SetVersion(one, v)
			b = wire.AppendPacked(b, one)
		}
		return b
	}
	other := func(version uint8) []byte {
		b := put(20)
		wire.SetVersion(b, version)
		return b
	}
	for _, version := range []uint8{wire.VersionMax, wire.VersionMax + 1, wire.VersionMin - 1, 255} {
		for name, last := range map[string][]byte{
			"a message of a version before": other(version - 1),
			"a message of a version behind": other(version + 1),
			"a pack of another version":     packOf(version-1, version-1, version-1),
			"a pack with another version":   packOf(version, version, version-1),
		} {
			g, r := testGroup(t, refuser{noHandler{t}})
			s, q, over := testSessionOf(t, g, r, version)
			s.Packs = true
			idle := func() bool { return !s.Busy() }
			q.Open(t, MinReplySize, idle)
			q.Feed(t, put(2), idle)
			q.Feed(t, packOf(version, version, version), idle)
			want := []wire.Type{wire.TypePut.Reply(), wire.TypePack.Reply()}
			if got := q.Sent(); !slices.Equal(got, want) {
				t.Errorf("version %d: %v is sent, want %v", version, got, want)
			}
			q.Mu.Lock()
			q.AsIs = true
			q.Mu.Unlock()
			q.Arrive(t, last)
			eventually(t, "the session ends", func() bool { return slices.Contains(q.Sent(), wire.TypeGoodbye) })
			q.End()
			<-over
			if h, b := g.Counters.Ends[base.CauseHeader].Load(), g.Counters.Ends[base.CauseBody].Load(); h+b != 1 {
				t.Errorf("version %d, %s: %d and %d sessions have ended for what a client sent", version, name, h, b)
			}
		}
	}
}
