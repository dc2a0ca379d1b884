package security

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestReadOnlyTenant: every kind of write is refused, by name; reads are served,
// also one-sidedly.
func TestReadOnlyTenant(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("bob", bobWord)
	alice, reader := r.dial("alice", aliceWord), r.dial("reader", readerWord)
	ctx := t.Context()
	large := bytes.Repeat([]byte("large"), 100_000)
	for key, value := range map[string][]byte{"k": []byte("v"), "n": []byte("7"), "large": large} {
		if err := alice.Put(ctx, []byte(key), value); err != nil {
			t.Fatal(err)
		}
	}
	var batch client.Batch
	batch.Put([]byte("k"), []byte("x"))
	var big client.Batch
	big.Put([]byte("k"), make([]byte, 100_000))
	for name, write := range map[string]func() error{
		"put":         func() error { return reader.Put(ctx, []byte("k"), []byte("x")) },
		"large put":   func() error { return reader.Put(ctx, []byte("k"), large) },
		"delete":      func() error { _, err := reader.Delete(ctx, []byte("k")); return err },
		"increment":   func() error { _, err := reader.Increment(ctx, []byte("n"), 1); return err },
		"touch":       func() error { return reader.Touch(ctx, []byte("k"), time.Hour) },
		"batch":       func() error { _, err := reader.WriteBatch(ctx, &batch); return err },
		"large batch": func() error { _, err := reader.WriteBatch(ctx, &big); return err },
		"condition": func() error {
			_, err := reader.PutWith(ctx, []byte("new"), nil, client.PutOptions{IfAbsent: true})
			return err
		},
		"admin": func() error { _, err := admin.Of(reader).Do(ctx, "", wire.AdminTenants, ""); return err },
	} {
		if err := write(); !errors.Is(err, client.ErrDenied) {
			t.Errorf("%s: %v, want ErrDenied", name, err)
		}
	}
	for key, want := range map[string][]byte{"k": []byte("v"), "n": []byte("7"), "large": large} {
		if got, err := reader.Get(ctx, []byte(key)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	if st, err := admin.Of(reader).Stats(ctx); err != nil || st.Client.OneSidedHits == 0 {
		t.Errorf("%+v, %v: no get was one-sided", st.Client, err)
	}
	if metric(r.metrics(), "rdmakv_requests_denied_total") < 9 {
		t.Error("what was denied is not counted")
	}
	stop()
}

// TestPrefixTenant: inside the prefix everything works, by SEND; outside nothing.
func TestPrefixTenant(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("", mainSecret)
	main, clerk := r.dial("", mainSecret), r.dial("clerk", clerkWord)
	ctx := t.Context()
	if err := main.Put(ctx, []byte("vault/gold"), []byte("much")); err != nil {
		t.Fatal(err)
	}
	// Sizes around every way that a value can take.
	for _, size := range []int{0, 1, 1000, 15_000, 17_000, 64 << 10, 64<<10 + 1, 300_000, 5 << 20} {
		key, value := fmt.Appendf(nil, "desk/%d", size), bytes.Repeat([]byte{byte(size), 7}, size/2+1)[:size]
		if err := clerk.Put(ctx, key, value); err != nil {
			t.Fatalf("put of %d bytes: %v", size, err)
		}
		if got, err := clerk.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("get of %d bytes: %d, %v", size, len(got), err)
		}
		if got, err := main.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("another's get of %d bytes: %d, %v", size, len(got), err)
		}
		off, n := int64(size/3), int64(size/2)
		if got, err := clerk.GetRange(ctx, key, off, n); err != nil || !bytes.Equal(got, value[off:off+n]) {
			t.Errorf("range of %d bytes: %d, %v", size, len(got), err)
		}
		if info, err := clerk.Stat(ctx, key); err != nil || info.Size != int64(size) {
			t.Errorf("stat of %d bytes: %+v, %v", size, info, err)
		}
	}
	if res, _ := clerk.MultiGet(ctx, [][]byte{[]byte("desk/1"), []byte("desk/1000"), []byte("desk/none")}); res[0].Err != nil || res[1].Err != nil || !errors.Is(res[2].Err, client.ErrNotFound) {
		t.Errorf("%v", res)
	}
	var mixed client.Batch
	mixed.Put([]byte("desk/{a}1"), []byte("1"))
	mixed.Put([]byte("vault/{a}2"), []byte("2"))
	var big client.Batch
	big.Put([]byte("desk/{a}1"), make([]byte, 50_000))
	big.Put([]byte("vault/{a}2"), []byte("2"))
	gold := []byte("vault/gold")
	for name, try := range map[string]func() error{
		"get":              func() error { _, err := clerk.Get(ctx, gold); return err },
		"stat":             func() error { _, err := clerk.Stat(ctx, gold); return err },
		"exists":           func() error { _, err := clerk.Exists(ctx, []byte("nothing")); return err },
		"put":              func() error { return clerk.Put(ctx, gold, nil) },
		"a shorter prefix": func() error { return clerk.Put(ctx, []byte("desk"), nil) },
		"large put":        func() error { return clerk.Put(ctx, gold, make([]byte, 100_000)) },
		"delete":           func() error { _, err := clerk.Delete(ctx, gold); return err },
		"increment":        func() error { _, err := clerk.Increment(ctx, gold, 1); return err },
		"touch":            func() error { return clerk.Touch(ctx, gold, time.Hour) },
		"batch":            func() error { _, err := clerk.WriteBatch(ctx, &mixed); return err },
		"large batch":      func() error { _, err := clerk.WriteBatch(ctx, &big); return err },
		"stats":            func() error { _, err := admin.Of(clerk).Stats(ctx); return err },
		"scan": func() error {
			for _, err := range clerk.Scan(ctx, client.ScanOptions{}) {
				return err
			}
			return nil
		},
		"scan of others": func() error {
			for _, err := range clerk.Scan(ctx, client.ScanOptions{Prefix: []byte("vault/")}) {
				return err
			}
			return nil
		},
		"watch": func() error {
			for _, err := range clerk.Watch(ctx, nil, client.WatchOptions{}) {
				return err
			}
			return nil
		},
	} {
		if err := try(); !errors.Is(err, client.ErrDenied) {
			t.Errorf("%s outside: %v, want ErrDenied", name, err)
		}
	}
	if _, err := main.Get(ctx, []byte("desk/{a}1")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("half a batch was written: %v", err)
	}
	if got, err := main.Get(ctx, gold); err != nil || string(got) != "much" {
		t.Errorf("the others' key: %q, %v", got, err)
	}
	n := 0
	for item, err := range clerk.Scan(ctx, client.ScanOptions{Prefix: []byte("desk/")}) {
		if err != nil || !bytes.HasPrefix(item.Key, []byte("desk/")) {
			t.Fatalf("%q, %v", item.Key, err)
		}
		n++
	}
	if n < 9 {
		t.Errorf("a scan inside finds %d keys", n)
	}
	stop()
}

// TestPrefixTenantStays: the session of a tenant with a prefix outlives leases
// and keepalives, of which it has no READs.
func TestPrefixTenantStays(t *testing.T) {
	r := startRig(t, func(c *server.Config) {
		c.Lease, c.Beat, c.Keepalive, c.Idle = 200*time.Millisecond, 50*time.Millisecond, 150*time.Millisecond, 2*time.Second
	})
	clerk := r.dial("clerk", clerkWord)
	for try := 1; ; try++ {
		session, last, silent := admin.Of(clerk).Server().Session, time.Now(), time.Duration(0)
		for i, until := 0, time.Now().Add(3*time.Second); time.Now().Before(until); i++ {
			if err := clerk.Put(t.Context(), []byte("desk/k"), fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
			if got, err := clerk.Get(t.Context(), []byte("desk/k")); err != nil || string(got) != fmt.Sprint(i) {
				t.Fatalf("%q, %v", got, err)
			}
			silent, last = max(silent, time.Since(last)), time.Now()
			time.Sleep(time.Duration(i%10) * 50 * time.Millisecond) // also longer than a lease
		}
		now := admin.Of(clerk).Server().Session
		if now == session {
			return
		}
		// On a machine that stalls it was silent for longer than the node waits: then it is right to end.
		if silent < r.cfg.Idle/2 || try == 3 {
			t.Fatalf("it is another session: %d after %d, silent for at most %v", now, session, silent)
		}
	}
}

// TestPrefixTenantHasNoREAD: a tenant with a prefix is told no region, and a READ
// with a true rkey ends its session.
func TestPrefixTenantHasNoREAD(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("", mainSecret)
	region := r.open("", mainSecret).regions()[0]
	clerk := r.open("clerk", clerkWord)
	if clerk.welcome.Flags&wire.WelcomeSendOnly == 0 || clerk.welcome.Regions != 0 || len(clerk.regions()) != 0 {
		t.Errorf("he is told of memory: %+v", clerk.welcome)
	}
	if err := clerk.read(region); err == nil || !bytes.Equal(clerk.sink(), make([]byte, 64)) {
		t.Errorf("he READs: %v, %x", err, clerk.sink())
	}
	clerk.gone()
	// Held places belong to the session that asked for them.
	main := r.dial("", mainSecret)
	if err := main.Put(t.Context(), []byte("vault/big"), make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	holder := r.open("", mainSecret)
	body, err := holder.call(func(id uint64) []byte { return wire.AppendGet(nil, id, wire.Get{Key: []byte("vault/big")}) })
	if err != nil {
		t.Fatal(err)
	}
	held, err := wire.ParseGetReply(body)
	if err != nil || held.Kind != wire.GetHeld {
		t.Fatalf("%+v, %v", held, err)
	}
	clerk = r.open("clerk", clerkWord)
	_, err = clerk.call(func(id uint64) []byte { return wire.AppendFetch(nil, id, wire.Fetch{Hold: held.Hold.ID, Length: 64}) })
	if !errors.Is(err, wire.StatusNoHold.Err()) {
		t.Errorf("another's held place: %v", err)
	}
	stop()
}

// TestAdminRight: the operator's requests are for those with the right.
func TestAdminRight(t *testing.T) {
	r := startRig(t, nil)
	for name, word := range map[string]string{"alice": aliceWord, "clerk": clerkWord} {
		c := r.dial(name, word)
		for _, op := range []wire.DocumentKind{wire.AdminRotate, wire.AdminRevoke, wire.AdminAllow, wire.AdminLimits, wire.AdminTenants, wire.AdminCheck, wire.AdminCopy} {
			if _, err := admin.Of(c).Do(t.Context(), "", op, "bob"); !errors.Is(err, client.ErrDenied) {
				t.Errorf("%s, %v: %v", name, op, err)
			}
		}
	}
	if st := r.tenant("bob"); st.Revoked {
		t.Error("somebody was revoked")
	}
	c := r.dial("", mainSecret)
	text, err := admin.Of(c).Do(t.Context(), "", wire.AdminTenants, "")
	if err != nil || !bytes.Contains(text, []byte(`"clerk"`)) {
		t.Errorf("%s, %v", text, err)
	}
	r.noSecrets("the list of tenants", string(text))
}

// TestReload: a change of the list of tenants is in force when the reload
// returns, for the tenants that changed and no others.
func TestReload(t *testing.T) {
	r := startRig(t, nil)
	stop := r.honest("alice", aliceWord)
	bob, clerk := r.open("bob", bobWord), r.dial("clerk", clerkWord)
	region := bob.regions()[0]
	list := tenants()
	list = append(list[:1], list[2:]...)                                                                 // without bob
	list[len(list)-1].Prefix = "counter/"                                                                // another clerk
	list = append(list, server.Tenant{Name: "dave", Secret: tenants()[1].Secret, MemoryLimit: 32 << 20}) // which has bob's old secret
	if err := r.srv.SetTenants(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if err := bob.read(region); err == nil {
		t.Error("one who was removed READs")
	}
	bob.gone()
	r.refusedAs(client.ErrAuth, "bob", bobWord)
	if err := clerk.Put(t.Context(), []byte("desk/1"), nil); !errors.Is(err, client.ErrDenied) {
		t.Errorf("the old right: %v", err)
	}
	if err := clerk.Put(t.Context(), []byte("counter/1"), nil); err != nil {
		t.Errorf("the new right: %v", err)
	}
	dave := r.dial("dave", bobWord)
	if err := dave.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Error(err)
	}
	bad := append(list, list[0], server.Tenant{Name: "Eve"})
	if err := r.srv.SetTenants(context.Background(), bad); err == nil {
		t.Error("a faulty list was taken")
	} else {
		r.noSecrets("the faults of a list", err.Error())
	}
	if err := dave.Put(t.Context(), []byte("k"), []byte("w")); err != nil {
		t.Errorf("after a faulty list: %v", err)
	}
	stop()
}
