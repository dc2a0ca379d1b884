package server

import (
	"errors"
	"fmt"
	"io"
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
	base := Config{DataDir: "d", Listeners: []Listener{{}}, Secret: []byte("the main secret 1")}.withDefaults()
	full := func(list ...Tenant) []Tenant {
		for i := range list {
			list[i] = list[i].withDefaults(&base)
		}
		return list
	}
	if err := base.checkTenants(full(Tenant{Name: "a", Secret: word(1)}, Tenant{Name: "b", Secret: word(2), Prefix: "b/"}, Tenant{Name: "c", Secret: word(3), Space: "a", ReadOnly: true})); err != nil {
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
	err := base.checkTenants(bad)
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
	if err := base.checkTenants(full(make([]Tenant, MaxTenants+1)...)); err == nil {
		t.Error("too many")
	}
}

// TestSpacesOfTenants: who shares a space gets the sum of sessions and the
// largest memory.
func TestSpacesOfTenants(t *testing.T) {
	base := Config{}.withDefaults()
	list := []Tenant{
		{Name: "a", MaxSessions: 10, MemoryLimit: 32 << 20}, {Name: "b", Space: "a", MaxSessions: 20, MemoryLimit: 64 << 20},
		{Name: "c", Prefix: "c"}, {Name: "d", Space: "main"}, {Name: "e", Space: "own", MaxSessions: 5},
	}
	for i := range list {
		list[i] = list[i].withDefaults(&base)
	}
	got := spacesOf(list, 4096)
	want := []SpaceConfig{{Name: "a", MaxSessions: 30, MemoryLimit: 64 << 20}, {Name: "e", MaxSessions: 5}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLogins: who is found under which id.
func TestLogins(t *testing.T) {
	var ls logins
	cfg := Config{Secret: []byte("the main secret 1"), Tenants: []Tenant{{Name: "a", Secret: word(1)}}}
	ls.start(&cfg)
	if l := ls.find(wire.Tenant{}); !l.admin || !l.write || !l.oneSided || l.label() != "main" {
		t.Errorf("the main login: %+v", l)
	}
	a := ls.find(wire.TenantOf("a"))
	if a.Name != "a" || a.admin {
		t.Errorf("a: %+v", a)
	}
	if l := ls.find(wire.TenantOf("b")); l != ls.stranger || l.Secret.Empty() {
		t.Error("b is somebody")
	}
	a.gone.Store(true)
	if ls.find(wire.TenantOf("a")) != ls.stranger {
		t.Error("one who is gone is found")
	}
	// Without a main secret, and with tenants, nobody comes in nameless.
	cfg.Secret = nil
	var second logins
	second.start(&cfg)
	if second.find(wire.Tenant{}) != second.stranger {
		t.Error("a nameless client is let in")
	}
	cfg.Tenants = nil
	var public logins
	public.start(&cfg)
	if l := public.find(wire.Tenant{}); l == public.stranger || !l.Secret.Empty() {
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

// TestRevokeWithoutDisk: a list that cannot be written revokes nobody, and says
// so; a crash in the middle leaves the old list.
func TestRevokeWithoutDisk(t *testing.T) {
	mem := vfs.NewMem()
	srv := startServer(t, func(c *Config) {
		c.FS, c.DataDir = mem, "data"
		c.Secret = []byte("the main secret 1")
		c.Tenants = []Tenant{{Name: "a", Secret: word(1), Space: "main"}, {Name: "b", Secret: word(2), Space: "main"}}
	})
	p := dial(t, srv, peerOptions{secret: word(1).Reveal(), tenant: "a"})
	if err := p.put("k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Revoke("b"); err != nil {
		t.Fatal(err)
	}
	srv.cfg.FS = failingFS{mem}
	if _, err := srv.Revoke("a"); !errors.Is(err, errNoDisk) {
		t.Errorf("revoked without a list: %v", err)
	}
	if err := p.put("k", "w"); err != nil {
		t.Errorf("the session of one who is not revoked: %v", err)
	}
	srv.cfg.FS = mem
	file, err := mem.Open("data/REVOKED")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	names, perr := parseRevoked(data)
	if err != nil || perr != nil || len(names) != 1 || names[0] != "b" {
		t.Errorf("%q, %v, %v", data, err, perr)
	}
}

var errNoDisk = errors.New("no disk")

// failingFS cannot make files.
type failingFS struct{ vfs.FS }

func (failingFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errNoDisk }
