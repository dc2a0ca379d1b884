package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/inspect"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
)

// setSpaces is Server.setSpaces that must succeed.
func setSpaces(t testing.TB, srv *Server, list ...SpaceConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := srv.spaces.set(ctx, list); err != nil {
		t.Fatal(err)
	}
}

// TestSpaceFaults: a list of spaces that cannot be is refused as a whole, with
// every fault, before anything starts and while a node runs.
func TestSpaceFaults(t *testing.T) {
	many := make([]SpaceConfig, MaxSpaces+1)
	for i := range many {
		many[i].Name = fmt.Sprint("s", i)
	}
	for _, c := range []struct {
		name  string
		list  []SpaceConfig
		texts []string
	}{
		{"too many", many, []string{"65 spaces: at most 64"}},
		{"names", []SpaceConfig{{Name: ""}, {Name: "main"}, {Name: "../etc"}, {Name: ".."}, {Name: "A"}, {Name: "a/b"}, {Name: strings.Repeat("x", 64)}, {Name: "-x"}},
			[]string{`space ""`, `space "main"`, `space "../etc"`, `space ".."`, `space "A"`, `space "a/b"`, `space "xxxx`, `space "-x"`}},
		{"twice", []SpaceConfig{{Name: "a"}, {Name: "a"}}, []string{`"a" is named twice`}},
		{"limits", []SpaceConfig{{Name: "a", MemoryLimit: 1 << 20, MaxSessions: 5000}}, []string{"memory limit = 1048576 bytes", "max sessions = 5000"}},
		{"more than the machine", []SpaceConfig{{Name: "a", MemoryLimit: 1 << 50}}, []string{"lower memory_limit or the tenants'"}},
	} {
		cfg := testConfig()
		cfg.Spaces = c.list
		_, err := New(cfg)
		for _, text := range c.texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v; want %q in it", c.name, err, text)
			}
		}
	}
	srv := startServer(t, nil)
	setSpaces(t, srv, SpaceConfig{Name: "a"})
	if err := srv.spaces.set(context.Background(), []SpaceConfig{{Name: "b"}, {Name: "b"}}); err == nil {
		t.Error("a faulty list was taken")
	}
	if srv.spaces.of("a") == nil || srv.spaces.of("b") != nil {
		t.Error("a faulty list changed the spaces")
	}
}

// TestSpaceLife: spaces come and go while the node runs; each has its own
// directory, identity, incarnation and PD; the files of one that was taken away
// stay, and with them its keys.
func TestSpaceLife(t *testing.T) {
	dir := t.TempDir()
	onDisk := func(c *Config) { c.DataDir, c.FS = dir, nil }
	srv := startServer(t, onDisk)
	if srv.spaces.of("") != srv.main || srv.spaces.of("main") != srv.main || srv.spaces.of("a") != nil || len(srv.Spaces()) != 0 {
		t.Fatal("a node without spaces has some")
	}
	setSpaces(t, srv, SpaceConfig{Name: "a"}, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	a, b := srv.spaces.of("a"), srv.spaces.of("b.2")
	if a == nil || b == nil {
		t.Fatalf("not open: %+v", srv.Spaces())
	}
	if a.Incarnation == b.Incarnation || a.Incarnation == srv.main.Incarnation || a.Store.ID() == b.Store.ID() || a.Store.ID() == srv.main.Store.ID() {
		t.Error("spaces share identity or incarnation")
	}
	if a.Rails.All()[0].PD == b.Rails.All()[0].PD || a.Rails.All()[0].PD == srv.main.Rails.All()[0].PD || a.Rails.All()[0].Dev != srv.devices.list[0].Dev {
		t.Error("spaces share a PD, or do not share the device")
	}
	if list := srv.Spaces(); len(list) != 2 || list[0].Name != "a" || list[1].Name != "b.2" || list[1].Limit != 32<<20 || list[0].Used <= 0 {
		t.Errorf("spaces: %+v", list)
	}
	put(t, a.Store, "key", "of a")
	put(t, b.Store, "key", "of b")
	put(t, srv.main.Store, "key", "of the node")
	for st, want := range map[*store.Store]string{a.Store: "of a", b.Store: "of b", srv.main.Store: "of the node"} {
		if got := get(t, st, "key"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	beats := b.Counters.Beats.Load()
	setSpaces(t, srv, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	if srv.spaces.of("a") != nil || srv.spaces.of("b.2") != b {
		t.Error("one was to go, the other to stay")
	}
	in, err := store.Inspect(context.Background(), filepath.Join(dir, "tenants", "a"), store.InspectOptions{})
	if err != nil || in.Keys != 1 || !in.CleanStop {
		t.Errorf("the files that stay: %+v, %v", in, err)
	}
	setSpaces(t, srv, SpaceConfig{Name: "a"}, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	if a = srv.spaces.of("a"); a == nil || get(t, a.Store, "key") != "of a" {
		t.Error("a space that came back has lost its key")
	}
	for deadline := time.Now().Add(20 * time.Second); b.Counters.Beats.Load() == beats; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a space does not beat")
		}
	}
}

// TestSpaceStarts: spaces that stand in the configuration are open when Start
// returns; one whose directory cannot be a store's does not stop the others,
// and is tried again.
func TestSpaceStarts(t *testing.T) {
	dir := t.TempDir()
	list := []SpaceConfig{{Name: "a"}, {Name: "c"}}
	bad := filepath.Join(dir, "tenants", "c")
	letter := filepath.Join(bad, "letter")
	if srv := startServer(t, func(c *Config) { c.Spaces = list }); srv.spaces.of("a") == nil || srv.spaces.of("c") == nil {
		t.Fatalf("not open: %+v", srv.Spaces())
	}
	srv := startServer(t, func(c *Config) { c.DataDir, c.FS = dir, nil })
	if err := os.MkdirAll(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(letter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := srv.spaces.set(context.Background(), list)
	if !errors.Is(err, store.ErrForeignDir) || !strings.Contains(err.Error(), `space "c"`) {
		t.Errorf("%v", err)
	}
	if srv.spaces.of("a") == nil || srv.spaces.of("c") != nil || !srv.Ready() {
		t.Error("a space that failed stopped others")
	}
	if st := srv.Spaces(); len(st) != 2 || st[1].State != "failed" || !strings.Contains(st[1].Detail, "letter") {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(letter); err != nil {
		t.Fatal(err)
	}
	setSpaces(t, srv, list...)
	if srv.spaces.of("c") == nil {
		t.Error("not tried again")
	}
}

// TestSpaceFenced: a space whose durability is gone stops by itself and is not
// opened again; the node and the other spaces go on.
func TestSpaceFenced(t *testing.T) {
	cfg := testConfig()
	cfg.Spaces = []SpaceConfig{{Name: "a"}, {Name: "b"}}
	cfg.AdminListen = "127.0.0.1:0"
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	a, b := srv.spaces.of("a"), srv.spaces.of("b")
	broken := errors.New("the log is on fire")
	a.Fail(broken)
	<-a.BeatDone
	if srv.spaces.of("a") != nil || srv.spaces.of("b") != b || !srv.Ready() || srv.Err() != nil {
		t.Error("the fence of a space is not its own")
	}
	put(t, b.Store, "key", "value")
	if code, body := httpGet(t, srv, "/readyz"); code != 200 || !strings.Contains(body, "space a: fenced: the log is on fire") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := httpGet(t, srv, "/metrics"); code != 200 || !strings.Contains(body, `rdmakv_spaces{state="fenced"} 1`) ||
		!strings.Contains(body, `rdmakv_space_ready{space="a"} 0`) || !strings.Contains(body, `rdmakv_space_ready{space="b"} 1`) ||
		!strings.Contains(body, "rdmakv_ready 1") {
		t.Errorf("metrics: %d %s", code, body)
	}
	setSpaces(t, srv, SpaceConfig{Name: "b"}) // a goes and comes back in the configuration
	setSpaces(t, srv, cfg.Spaces...)
	if srv.spaces.of("a") != nil || srv.Spaces()[0].State != "fenced" {
		t.Errorf("a fenced space serves again: %+v", srv.Spaces())
	}
	if err := srv.Shutdown(context.Background()); !errors.Is(err, broken) || !strings.Contains(err.Error(), `space "a"`) {
		t.Errorf("Shutdown: %v", err)
	}
	// A real process ends here; this one's stores are whole, so they are closed.
	a.Store.Close()
	a.Rails.Close()
	for _, d := range srv.devices.list {
		if err := d.Dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSpaceTools: a space is checked, inspected and backed up like a store of
// its own, the backup while it serves.
func TestSpaceTools(t *testing.T) {
	dir := t.TempDir()
	srv := startServer(t, func(c *Config) { c.DataDir, c.FS, c.Spaces = dir, nil, []SpaceConfig{{Name: "a"}, {Name: "b"}} })
	for i := range 100 {
		put(t, srv.spaces.of("a").Store, fmt.Sprint("key", i), "value")
	}
	put(t, srv.spaces.of("b").Store, "other", "value")
	from, to := filepath.Join(dir, "tenants", "a"), filepath.Join(t.TempDir(), "copy")
	var out bytes.Buffer
	if err := inspect.Backup(context.Background(), &out, from, to, inspect.Undecided); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := inspect.Check(context.Background(), &out, &out, to); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	// The node's own backup has the node's keys.
	to = filepath.Join(t.TempDir(), "copy")
	if err := inspect.Backup(context.Background(), &out, dir, to, inspect.MainOnly); err != nil || !strings.Contains(out.String(), from) {
		t.Fatalf("%v, or not a word of the spaces:\n%s", err, out.String())
	}
	setSpaces(t, srv, SpaceConfig{Name: "b"})
	out.Reset()
	if err := inspect.Run(context.Background(), &out, from, inspect.Options{Keys: true}); err != nil || strings.Count(out.String(), "key") < 100 || strings.Contains(out.String(), "other") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := inspect.Check(context.Background(), &out, &out, from); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestSpacesShareStaging: large puts of all spaces wait in the line of the node, whose
// bound is that of all of them together.
func TestSpacesShareStaging(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.StagingBytes, c.Spaces = minStaging, []SpaceConfig{{Name: "a"}, {Name: "b"}} })
	held, err := srv.spaces.of("a").Staging.Get(t.Context(), new(base.Account), 0, minStaging/2, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, sp := range []*space.Space{srv.main, srv.spaces.of("b")} {
		if s, err := sp.Staging.Get(over, new(base.Account), 0, minStaging, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("space %q has %v, %v beside what another one has", sp.Name, s, err)
		}
	}
	held.Release()
	s, err := srv.main.Staging.Get(t.Context(), new(base.Account), 0, minStaging, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
}

// TestMemoryRights: nothing that the node or a space registers lets a peer
// write, and slabs let it read and no more. What is asked here is what the
// fabric is asked for; attempts are in the tests of sessions.
func TestMemoryRights(t *testing.T) {
	card := newCard("card", iwarp.Options{})
	srv := startServer(t, func(c *Config) { c.Fabric, c.Spaces = card, []SpaceConfig{{Name: "a"}} })
	p := dial(t, srv, peerOptions{})
	if err := p.put("key", strings.Repeat("v", 8000)); err != nil {
		t.Fatal(err)
	}
	value := p.sink()[:1<<20]
	if err := p.putLarge([]byte("k"), len(value), checksum(value)); err != nil {
		t.Fatal(err)
	}
	rights := card.registered()
	for access, n := range rights {
		switch access {
		case 0, rdma.AccessLocalWrite, rdma.AccessRemoteRead: // replies; receives and staging; slabs
		default:
			t.Errorf("%d registrations with %v", n, access)
		}
	}
	if rights[rdma.AccessRemoteRead] < 3 || rights[rdma.AccessLocalWrite] < 2 || rights[0] < 1 {
		t.Errorf("not all was seen: %v", rights)
	}
	slabs := 0 // and nothing else can be read
	for _, sp := range srv.spaces.every() {
		slabs += len(sp.Store.View().Regions)
	}
	if n := rights[rdma.AccessRemoteRead]; n != slabs {
		t.Errorf("%d registrations can be read, there are %d regions", n, slabs)
	}
}

func put(t *testing.T, st *store.Store, key, value string) {
	t.Helper()
	if _, err := st.Put(context.Background(), 0, []byte(key), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, st *store.Store, key string) string {
	t.Helper()
	v, err := st.Get(context.Background(), 0, []byte(key), nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(v.Data)
}

// TestSpaceLog: the logs of spaces are in proportion to their memory, in whole MiB, and
// between the least of a log and the node's.
func TestSpaceLog(t *testing.T) {
	for _, tt := range []struct {
		node         int64
		space, limit uint64
		want         int64
	}{
		{0, 64 << 20, 0, 16 << 20}, // the defaults: 256 MiB for 1 GiB
		{0, 64 << 20, 256 << 20, 64 << 20},
		{0, 16 << 20, 1 << 30, store.MinLogBytes},
		{0, 100<<20 + 7, 1 << 30, 25 << 20},
		{1 << 30, 4 << 30, 1 << 30, 1 << 30},
		{store.MinLogBytes, 1 << 30, 1 << 30, store.MinLogBytes},
		{store.MaxLogBytes, 4 << 40, 8 << 20, store.MaxLogBytes},
	} {
		c := testConfig()
		c.LogBytes, c.MemoryLimit = tt.node, tt.limit
		got := c.forSpace(SpaceConfig{Name: "clerk", MemoryLimit: tt.space}).LogBytes
		if got != tt.want {
			t.Errorf("a space of %d bytes on a node of %d with a log of %d: %d, want %d", tt.space, tt.limit, tt.node, got, tt.want)
		}
	}
}
