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
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// setSpaces is Server.setSpaces that must succeed.
func setSpaces(t testing.TB, srv *Server, list ...SpaceConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := srv.setSpaces(ctx, list); err != nil {
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
	if err := srv.setSpaces(context.Background(), []SpaceConfig{{Name: "b"}, {Name: "b"}}); err == nil {
		t.Error("a faulty list was taken")
	}
	if srv.spaceOf("a") == nil || srv.spaceOf("b") != nil {
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
	if srv.spaceOf("") != srv || srv.spaceOf("main") != srv || srv.spaceOf("a") != nil || len(srv.Spaces()) != 0 {
		t.Fatal("a node without spaces has some")
	}
	setSpaces(t, srv, SpaceConfig{Name: "a"}, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	a, b := srv.spaceOf("a"), srv.spaceOf("b.2")
	if a == nil || b == nil {
		t.Fatalf("not open: %+v", srv.Spaces())
	}
	if a.incarnation == b.incarnation || a.incarnation == srv.incarnation || a.store.ID() == b.store.ID() || a.store.ID() == srv.store.ID() {
		t.Error("spaces share identity or incarnation")
	}
	if a.devices[0].pd == b.devices[0].pd || a.devices[0].pd == srv.devices[0].pd || a.devices[0].dev != srv.devices[0].dev {
		t.Error("spaces share a PD, or do not share the device")
	}
	if list := srv.Spaces(); len(list) != 2 || list[0].Name != "a" || list[1].Name != "b.2" || list[1].Limit != 32<<20 || list[0].Used <= 0 {
		t.Errorf("spaces: %+v", list)
	}
	put(t, a.store, "key", "of a")
	put(t, b.store, "key", "of b")
	put(t, srv.store, "key", "of the node")
	for st, want := range map[*store.Store]string{a.store: "of a", b.store: "of b", srv.store: "of the node"} {
		if got := get(t, st, "key"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	beats := b.met.beats.Load()
	setSpaces(t, srv, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	if srv.spaceOf("a") != nil || srv.spaceOf("b.2") != b {
		t.Error("one was to go, the other to stay")
	}
	in, err := store.Inspect(context.Background(), filepath.Join(dir, "tenants", "a"), store.InspectOptions{})
	if err != nil || in.Keys != 1 || !in.CleanStop {
		t.Errorf("the files that stay: %+v, %v", in, err)
	}
	setSpaces(t, srv, SpaceConfig{Name: "a"}, SpaceConfig{Name: "b.2", MemoryLimit: 32 << 20, MaxSessions: 3})
	if a = srv.spaceOf("a"); a == nil || get(t, a.store, "key") != "of a" {
		t.Error("a space that came back has lost its key")
	}
	for deadline := time.Now().Add(20 * time.Second); b.met.beats.Load() == beats; time.Sleep(10 * time.Millisecond) {
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
	if srv := startServer(t, func(c *Config) { c.Spaces = list }); srv.spaceOf("a") == nil || srv.spaceOf("c") == nil {
		t.Fatalf("not open: %+v", srv.Spaces())
	}
	srv := startServer(t, func(c *Config) { c.DataDir, c.FS = dir, nil })
	if err := os.MkdirAll(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(letter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := srv.setSpaces(context.Background(), list)
	if !errors.Is(err, store.ErrForeignDir) || !strings.Contains(err.Error(), `space "c"`) {
		t.Errorf("%v", err)
	}
	if srv.spaceOf("a") == nil || srv.spaceOf("c") != nil || !srv.Ready() {
		t.Error("a space that failed stopped others")
	}
	if st := srv.Spaces(); len(st) != 2 || st[1].State != "failed" || !strings.Contains(st[1].Detail, "letter") {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(letter); err != nil {
		t.Fatal(err)
	}
	setSpaces(t, srv, list...)
	if srv.spaceOf("c") == nil {
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
	a, b := srv.spaceOf("a"), srv.spaceOf("b")
	broken := errors.New("the log is on fire")
	a.fatal(broken)
	<-a.beatDone
	if srv.spaceOf("a") != nil || srv.spaceOf("b") != b || !srv.Ready() || srv.Err() != nil {
		t.Error("the fence of a space is not its own")
	}
	put(t, b.store, "key", "value")
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
	if srv.spaceOf("a") != nil || srv.Spaces()[0].State != "fenced" {
		t.Errorf("a fenced space serves again: %+v", srv.Spaces())
	}
	if err := srv.Shutdown(context.Background()); !errors.Is(err, broken) || !strings.Contains(err.Error(), `space "a"`) {
		t.Errorf("Shutdown: %v", err)
	}
	// A real process ends here; this one's stores are whole, so they are closed.
	a.store.Close()
	for _, d := range a.devices {
		d.close()
	}
	for _, d := range srv.devices {
		if err := d.dev.Close(); err != nil {
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
		put(t, srv.spaceOf("a").store, fmt.Sprint("key", i), "value")
	}
	put(t, srv.spaceOf("b").store, "other", "value")
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

// TestSpacesShareStaging: the bound of the node's staging memory holds for all
// its spaces together, and who gives up waiting leaves nothing behind.
func TestSpacesShareStaging(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.StagingBytes, c.Spaces = minStaging, []SpaceConfig{{Name: "a"}, {Name: "b"}} })
	a, b := srv.spaceOf("a").staging, srv.spaceOf("b").staging
	held, err := a.get(t.Context(), &login{}, 0, minStaging/2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	type got struct {
		s   *stage
		err error
	}
	results := make(chan got, 2)
	ask := func(ctx context.Context, g *staging) {
		s, err := g.get(ctx, &login{}, 0, minStaging)
		results <- got{s, err}
	}
	go ask(ctx, b)
	eventually(t, "b waits", func() bool { _, waiting := srv.staging.inUse(); return waiting == 1 })
	cancel()
	if r := <-results; !errors.Is(r.err, context.Canceled) {
		t.Errorf("%v", r.err)
	}
	if used, waiting := b.inUse(); used != 0 || waiting != 0 {
		t.Errorf("%d bytes in use and %d waiting after giving up", used, waiting)
	}
	go ask(t.Context(), b)
	eventually(t, "b waits", func() bool { _, waiting := srv.staging.inUse(); return waiting == 1 })
	held.release()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.s.release()
	keptOf := func(g *staging) int64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.kept
	}
	for _, g := range []*staging{a, b, srv.staging} {
		if used, waiting := g.inUse(); used != 0 || waiting != 0 || keptOf(g) > minStaging {
			t.Errorf("in use %d, kept %d, waiting %d", used, keptOf(g), waiting)
		}
	}
	line := srv.staging.line
	keptInAll := func() int64 {
		line.mu.Lock()
		defer line.mu.Unlock()
		return line.kept
	}
	kept := keptInAll()
	setSpaces(t, srv)
	if kept == 0 || keptInAll() != 0 {
		t.Errorf("kept %d with the spaces, %d without them", kept, keptInAll())
	}
}

// TestKeptStagingIsBounded: what a space keeps of staging memory is freed when
// another space needs as much: in use and kept together stay within the node's bound.
func TestKeptStagingIsBounded(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.StagingBytes, c.Spaces = minStaging, []SpaceConfig{{Name: "a"}, {Name: "b"}} })
	line := srv.staging.line
	for _, g := range []*staging{srv.spaceOf("a").staging, srv.spaceOf("b").staging, srv.staging, srv.spaceOf("a").staging} {
		s, err := g.get(t.Context(), &login{}, 0, minStaging)
		if err != nil {
			t.Fatal(err)
		}
		line.mu.Lock()
		used, kept, own := line.used, line.kept, g.used
		line.mu.Unlock()
		if used+kept > minStaging || own != minStaging {
			t.Errorf("%d bytes are in use, %d kept: the bound is %d", used, kept, int64(minStaging))
		}
		s.release()
		line.mu.Lock()
		if line.kept == 0 {
			t.Error("nothing is kept")
		}
		line.mu.Unlock()
	}
	if len(line.pools) != 3 {
		t.Errorf("%d pools", len(line.pools))
	}
}

// TestMemoryRights: nothing that the node or a space has registered lets a peer
// write, and slabs let it read and no more. What is asked here is what the
// fabric says of each region; attempts are in the tests of sessions.
func TestMemoryRights(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.Spaces = []SpaceConfig{{Name: "a"}} })
	p := dial(t, srv, peerOptions{})
	if err := p.put("key", strings.Repeat("v", 8000)); err != nil {
		t.Fatal(err)
	}
	value := p.sink()[:1<<20]
	if err := p.putLarge([]byte("k"), len(value), checksum(value)); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, sp := range srv.everySpace() {
		for id, s := range *sp.regions.byID.Load() {
			for _, mr := range s.mrs {
				seen++
				if mr.Access() != rdma.AccessRemoteRead || mr.PD() == nil {
					t.Errorf("space %q: region %d is registered with %v", sp.space, id, mr.Access())
				}
			}
		}
		for _, d := range sp.devices {
			for _, l := range d.lanes {
				for _, pool := range append(l.replies[:], l.recvs) {
					for _, b := range pool.blocks {
						seen++
						if b.mr.Access()&rdma.AccessRemoteMask != 0 || b.mr.RKey() != 0 {
							t.Errorf("space %q: buffers %q are registered with %v", sp.space, pool.tag, b.mr.Access())
						}
					}
				}
			}
		}
		for _, of := range sp.staging.sinks {
			for _, class := range of.free {
				for _, st := range class {
					seen++
					if st.mr.Access()&rdma.AccessRemoteMask != 0 {
						t.Errorf("space %q: staging is registered with %v", sp.space, st.mr.Access())
					}
				}
			}
		}
	}
	if seen < 6 {
		t.Errorf("only %d registrations were looked at", seen)
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
