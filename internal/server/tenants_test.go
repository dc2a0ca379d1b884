package server

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/secret"
)

func word(i int) secret.Text { return secret.New(fmt.Appendf(nil, "secret number %06d", i)) }

// TestSpacesOfTenants: who shares a space gets the sum of sessions and the
// largest memory.
func TestSpacesOfTenants(t *testing.T) {
	list := []Tenant{
		{Name: "a", MaxSessions: 10, MemoryLimit: 32 << 20}, {Name: "b", Space: "a", MaxSessions: 20, MemoryLimit: 64 << 20},
		{Name: "c", Prefix: "c"}, {Name: "d", Space: "main"}, {Name: "e", Space: "own", MaxSessions: 5},
	}
	for i := range list {
		list[i] = list[i].WithDefaults(4096)
	}
	got := spacesOf(list, 4096)
	want := []SpaceConfig{{Name: "a", MaxSessions: 30, MemoryLimit: 64 << 20}, {Name: "e", MaxSessions: 5}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRevokeWithoutDisk: a list that cannot be written revokes nobody, and says
// so; a crash in the middle leaves the old list.
func TestRevokeWithoutDisk(t *testing.T) {
	mem := &fullFS{FS: vfs.NewMem()}
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
	mem.full.Store(true)
	if _, err := srv.Revoke("a"); !errors.Is(err, errNoDisk) {
		t.Errorf("revoked without a list: %v", err)
	}
	if err := p.put("k", "w"); err != nil {
		t.Errorf("the session of one who is not revoked: %v", err)
	}
	mem.full.Store(false)
	file, err := mem.Open("data/REVOKED")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil || !strings.Contains(string(data), "\nb\n") || strings.Contains(string(data), "\na\n") {
		t.Errorf("%q, %v", data, err)
	}
}

var errNoDisk = errors.New("no disk")

// fullFS cannot make files while it is full.
type fullFS struct {
	vfs.FS
	full atomic.Bool
}

func (fs *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.full.Load() {
		return nil, errNoDisk
	}
	return fs.FS.Create(name, c)
}
