package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func word(i int) secret.Text { return secret.New(fmt.Appendf(nil, "secret number %06d", i)) }

// TestTenantFaults: every fault of a list is reported at once, with the tenant's
// name and never with a secret.
func TestTenantFaults(t *testing.T) {
	const maxSessions = 4096
	check := func(list []Tenant) error { return Check(list, []byte("the main secret 1"), maxSessions) }
	full := func(list ...Tenant) []Tenant {
		for i := range list {
			list[i] = list[i].WithDefaults(maxSessions)
		}
		return list
	}
	if err := check(full(Tenant{Name: "a", Secret: word(1)}, Tenant{Name: "b", Secret: word(2), Prefix: "b/"}, Tenant{Name: "c", Secret: word(3), Space: "a", ReadOnly: true})); err != nil {
		t.Error(err)
	}
	bad := full(
		Tenant{Name: "", Secret: word(1)},
		Tenant{Name: "Upper", Secret: word(2)},
		Tenant{Name: "main", Secret: word(3)},
		Tenant{Name: "own", Secret: word(4)},
		Tenant{Name: strings.Repeat("x", 64), Secret: word(5)},
		Tenant{Name: "short", Secret: secret.New([]byte("15 bytes of it!"))},
		Tenant{Name: "none"},
		Tenant{Name: "twice", Secret: word(6)},
		Tenant{Name: "twice", Secret: word(7)},
		Tenant{Name: "thief", Secret: word(7)},
		Tenant{Name: "operator", Secret: secret.New([]byte("the main secret 1"))},
		Tenant{Name: "where", Secret: word(8), Space: "../etc"},
		Tenant{Name: "limit", Secret: word(9), Space: "main", MemoryLimit: 1 << 30},
		Tenant{Name: "both", Secret: word(10), ReadOnly: true, Admin: true},
		Tenant{Name: "both2", Secret: word(11), Prefix: "p", Admin: true},
		Tenant{Name: "long", Secret: word(12), Prefix: strings.Repeat("p", 5000)},
		Tenant{Name: "many", Secret: word(13), MaxSessions: 1 << 20},
		Tenant{Name: "few", Secret: word(14), MaxSessions: -1},
		Tenant{Name: "requests", Secret: word(15), MaxRequests: -1},
		Tenant{Name: "bytes", Secret: word(16), MaxInflightBytes: 5},
	)
	err := check(bad)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 20 {
		t.Fatalf("not every fault: %v", err)
	}
	for i := range bad {
		if !strings.Contains(err.Error(), fmt.Sprintf("%q", bad[i].Name)) {
			t.Errorf("nothing about %q", bad[i].Name)
		}
		if plain := string(bad[i].Secret.Reveal()); plain != "" && strings.Contains(err.Error(), plain) {
			t.Errorf("a fault shows a secret: %v", err)
		}
	}
	if err := check(full(make([]Tenant, MaxTenants+1)...)); err == nil {
		t.Error("too many")
	}
}

// TestLogins: who is found under which id.
func TestLogins(t *testing.T) {
	cfg := LoginsConfig{Secret: []byte("the main secret 1"), Tenants: []Tenant{{Name: "a", Secret: word(1)}}}
	ls := NewLogins(cfg)
	if l := ls.Find(wire.Tenant{}); !l.Admin || !l.MayWrite || !l.OneSided || l.Label != "main" {
		t.Errorf("the main login: %+v", l)
	}
	a := ls.Find(wire.TenantOf("a"))
	if a.Name != "a" || a.Admin {
		t.Errorf("a: %+v", a)
	}
	if l := ls.Find(wire.TenantOf("b")); l != ls.stranger || l.Secret.Empty() {
		t.Error("b is somebody")
	}
	a.gone.Store(true)
	if ls.Find(wire.TenantOf("a")) != ls.stranger {
		t.Error("one who is gone is found")
	}
	// Without a main secret, and with tenants, nobody comes in nameless.
	cfg.Secret = nil
	second := NewLogins(cfg)
	if second.Find(wire.Tenant{}) != second.stranger {
		t.Error("a nameless client is let in")
	}
	cfg.Tenants = nil
	public := NewLogins(cfg)
	if l := public.Find(wire.Tenant{}); l == public.stranger || !l.Secret.Empty() {
		t.Error("a public node lets nobody in")
	}
}

// TestRevokedList writes and reads the list over every kind of damage.
func TestRevokedList(t *testing.T) {
	for _, names := range [][]string{nil, {"a"}, {"a", "b.c-d"}} {
		got, err := parseRevoked(encodeRevoked(names))
		if err != nil || strings.Join(got, ",") != strings.Join(names, ",") {
			t.Errorf("%q: %q, %v", names, got, err)
		}
	}
	good := encodeRevoked([]string{"alice", "bob"})
	for i := range good {
		if _, err := parseRevoked(good[:i]); err == nil {
			t.Errorf("cut at %d", i)
		}
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			if got, err := parseRevoked(bad); err == nil {
				t.Errorf("byte %d, bit %d: %q", i, bit, got)
			}
		}
	}
}

func FuzzRevokedList(f *testing.F) {
	f.Add(encodeRevoked([]string{"alice"}))
	f.Add([]byte(revokedTitle))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := parseRevoked(data)
		if err == nil && string(encodeRevoked(names)) != string(data) {
			t.Fatalf("%q is read as %q", data, names)
		}
	})
}

// testLogins are the main login, a and b, with the list of the revoked on disk.
func testLogins(t *testing.T, disk vfs.FS) *Logins {
	t.Helper()
	ls := NewLogins(LoginsConfig{
		Secret: []byte("the main secret 1"), FS: disk, Dir: "data",
		Tenants: []Tenant{{Name: "a", Secret: word(1), Space: "main"}, {Name: "b", Secret: word(2), Space: "b"}},
	})
	if _, err := ls.Load(); err != nil {
		t.Fatal(err)
	}
	return ls
}

// TestRevokeAndAllow: a login is gone and the list on disk before its sessions are ended,
// the others stay what they are, and what was revoked is so after a restart.
func TestRevokeAndAllow(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	ls := testLogins(t, disk)
	a, b := ls.Find(wire.TenantOf("a")), ls.Find(wire.TenantOf("b"))
	busy := errors.New("they are closing yet")
	ends := 0
	answer, err := ls.Revoke("a", func(gone []*Login) (int, error) {
		ends++
		if len(gone) != 1 || gone[0] != a || !a.Gone() || b.Gone() || ls.Find(wire.TenantOf("a")) != ls.stranger {
			t.Errorf("%v: a is gone: %v, b: %v", gone, a.Gone(), b.Gone())
		}
		if names, err := ls.list.load(); err != nil || strings.Join(names, ",") != "a" {
			t.Errorf("on disk: %q, %v", names, err)
		}
		return 3, busy
	})
	if !errors.Is(err, busy) || answer.Tenant != "a" || answer.Sessions != 3 || !answer.Durable || strings.Join(answer.Revoked, ",") != "a" {
		t.Errorf("%+v, %v", answer, err)
	}
	if again := testLogins(t, disk); again.Find(wire.TenantOf("a")) != again.stranger || again.Find(wire.TenantOf("b")).Name != "b" {
		t.Error("a restart lets one in who was revoked, or another one not")
	}
	none := func([]*Login) (int, error) { t.Error("sessions are ended"); return 0, nil }
	if _, err := ls.Revoke("c", none); !errors.Is(err, ErrNoTenant) {
		t.Errorf("one who is not there: %v", err)
	}
	if _, err := ls.Revoke("", none); !errors.Is(err, ErrMainLogin) {
		t.Errorf("the main login: %v", err)
	}
	if answer, err := ls.Allow("a"); err != nil || !answer.Durable || len(answer.Revoked) != 0 {
		t.Errorf("%+v, %v", answer, err)
	}
	if l := ls.Find(wire.TenantOf("a")); l == a || l.Name != "a" || !a.Gone() {
		t.Error("the login that was revoked comes back for its sessions")
	}
	if again := testLogins(t, disk); again.Find(wire.TenantOf("a")).Name != "a" || ends != 1 {
		t.Error("a restart revokes again")
	}
}

// TestReplace: who is unchanged keeps the login, the others are gone before their sessions
// end; one who is revoked stays so; the main login stays while it has a secret.
func TestReplace(t *testing.T) {
	ls := testLogins(t, nil)
	ls.list = revokedList{} // keeps nothing
	main, a, b := ls.Find(wire.Tenant{}), ls.Find(wire.TenantOf("a")), ls.Find(wire.TenantOf("b"))
	quiet := func([]*Login) (int, error) { return 0, nil }
	if answer, err := ls.Revoke("b", quiet); err != nil || answer.Durable {
		t.Fatal(answer, err)
	}
	changed := Tenant{Name: "b", Secret: word(3), Space: "b"}
	gone, ended, err := ls.Replace([]Tenant{a.Tenant, changed, {Name: "c", Secret: word(4), Space: "main"}}, true, func(list []*Login) (int, error) {
		if len(list) != 1 || list[0] != b {
			t.Errorf("%d are gone", len(list))
		}
		return 5, nil
	})
	if gone != 1 || ended != 5 || err != nil {
		t.Errorf("%d gone, %d sessions ended, %v", gone, ended, err)
	}
	if ls.Find(wire.TenantOf("a")) != a || a.Gone() || ls.Find(wire.Tenant{}) != main {
		t.Error("who is unchanged is somebody else")
	}
	if ls.Find(wire.TenantOf("b")) != ls.stranger {
		t.Error("another secret lets one in who was revoked")
	}
	if !ls.Shared("main") || ls.Shared("b") || ls.Alone() || len(ls.All()) != 4 {
		t.Errorf("main is shared: %v, b: %v", ls.Shared("main"), ls.Shared("b"))
	}
	if _, _, err := ls.Replace(nil, false, quiet); err != nil || ls.Find(wire.Tenant{}) != main || !ls.Alone() {
		t.Errorf("without tenants: %v", err)
	}
	if _, _, err := ls.Replace([]Tenant{a.Tenant}, false, quiet); err != nil || ls.Find(wire.Tenant{}) != ls.stranger || !main.Gone() {
		t.Errorf("with tenants and no main secret: %v", err)
	}
}
