package security

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// TestRevokeRace: no READ that is posted after Revoke has returned completes,
// however many are under way.
func TestRevokeRace(t *testing.T) {
	r := startRig(t, nil)
	rnd := random(t)
	stop := r.honest("alice", aliceWord)
	for range *roundsFlag {
		p := r.open("bob", bobWord)
		region := p.regions()[0]
		var revoked atomic.Bool
		var wg sync.WaitGroup
		before, after := 0, 0
		started := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				late := revoked.Load() // before the READ is posted
				err := p.read(region)
				if err == nil && late {
					after++
				}
				if err == nil {
					before++
				}
				if i == 3 || err != nil && i < 3 {
					close(started)
				}
				if late || err != nil && p.qp.State() == rdma.QPError {
					return
				}
			}
		})
		<-started
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
		answer, err := r.srv.Revoke("bob")
		revoked.Store(true)
		if err != nil || answer.Sessions != 1 || !answer.Durable {
			t.Fatalf("%+v, %v", answer, err)
		}
		wg.Wait()
		if before == 0 || after != 0 {
			t.Fatalf("%d READs completed, %d of them were posted after Revoke had returned", before, after)
		}
		r.refusedAs(client.ErrAuth, "bob", bobWord)
		if _, err := r.srv.Allow("bob"); err != nil {
			t.Fatal(err)
		}
	}
	c := r.dial("bob", bobWord)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Errorf("allowed again: %v", err)
	}
	stop()
}

// TestRevokeMany: all sessions of a tenant end, whatever they are about; those on
// their way in do not slip through; the client is told why.
func TestRevokeMany(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("alice", aliceWord)
	var open []*peer
	for range 20 {
		open = append(open, r.open("bob", bobWord))
	}
	waits := r.dial("bob", bobWord)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, err := range waits.Watch(t.Context(), nil, client.WatchOptions{}) {
			if err != nil {
				if !errors.Is(err, client.ErrAuth) {
					t.Errorf("a watch that waits: %v", err)
				}
				return
			}
		}
	})
	half := newPeer(t)
	half.tenant, half.word = "bob", bobWord
	if err := half.reach(r.addr(), nil); err != nil {
		t.Fatal(err)
	}
	owner := r.dial("", mainSecret)
	if _, err := admin.Of(owner).Do(t.Context(), "", wire.AdminRevoke, "bob"); err != nil {
		t.Fatal(err)
	}
	if st := r.tenant("bob"); !st.Revoked {
		t.Errorf("%+v", st)
	}
	eventually(t, "no session of his is counted", func() bool { return r.tenant("bob").Sessions == 0 })
	for _, p := range open {
		_, err := p.call(func(id uint64) []byte { return wire.AppendPing(nil, id, wire.Ping{}) })
		if err == nil {
			t.Fatal("a session goes on")
		}
		if !errors.Is(err, wire.StatusAuth.Err()) {
			t.Errorf("not told why: %v", err)
		}
		p.gone()
	}
	if err := half.sayHello(); err == nil {
		t.Error("one on its way in slipped through")
	}
	if err := waits.Put(t.Context(), []byte("k"), nil); !errors.Is(err, client.ErrAuth) {
		t.Errorf("a client of the library: %v", err)
	}
	wg.Wait()
	for _, name := range []string{"", "nobody"} {
		if _, err := admin.Of(owner).Do(t.Context(), "", wire.AdminRevoke, name); err == nil {
			t.Errorf("%q was revoked", name)
		}
	}
	stop()
}

// TestRevokedStaysRevoked over a restart of the node; a list that is damaged
// keeps the node from starting.
func TestRevokedStaysRevoked(t *testing.T) {
	r := startRig(t, nil)
	for _, name := range []string{"bob", "clerk"} {
		if _, err := r.srv.Revoke(name); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	r.start()
	r.refusedAs(client.ErrAuth, "bob", bobWord)
	r.refusedAs(client.ErrAuth, "clerk", clerkWord)
	r.dial("alice", aliceWord)
	if _, err := r.srv.Allow("clerk"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	path := filepath.Join(r.cfg.DataDir, "REVOKED")
	good, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(good), "bob\n") || strings.Contains(string(good), "clerk") {
		t.Fatalf("%q, %v", good, err)
	}
	for name, bad := range map[string]string{
		"cut off": string(good[:len(good)-5]), "a name less": strings.Replace(string(good), "bob\n", "", 1), "empty": "",
	} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.tryStart(); err == nil {
			r.stop()
			t.Errorf("%s: the node starts", name)
		} else if !strings.Contains(err.Error(), "REVOKED") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.refusedAs(client.ErrAuth, "bob", bobWord)
	r.dial("clerk", clerkWord)
}
