package handle

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// TestRequestIDs: the store is told whose a numbered write is, so that one tenant's
// results take no place of another's, and by which client.
func TestRequestIDs(t *testing.T) {
	logins := auth.NewLogins(auth.LoginsConfig{
		Secret: []byte("main"), MaxSessions: 8, MaxRequests: 64, Tenants: []auth.Tenant{tenant("guest"), tenant("clerk")},
	})
	owners := make(map[uint32]string)
	for _, l := range logins.All() {
		s := &session.Session{Login: l}
		s.ClientID = l.Client([16]byte{1})
		r := &op{Request: &session.Request{Session: s}}
		id, ok := r.requestID(wire.RequestID{Slot: 1, Seq: 2})
		if other, taken := owners[id.Owner]; !ok || taken || id.Client != s.ClientID || id.Slot != 1 || id.Seq != 2 {
			t.Errorf("a write of %q: %+v, the owner is that of %q", l.Name, id, other)
		}
		owners[id.Owner] = l.Name
		if id, ok := r.requestID(wire.RequestID{Slot: 1}); !ok || id != (store.RequestID{}) {
			t.Errorf("a write without a number: %+v", id)
		}
	}
	if name, ok := owners[0]; len(owners) != 3 || !ok || name != "" {
		t.Errorf("owners: %v", owners)
	}
}
