package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/test/node"
)

// A backed is what was written before a backup, and while it was made.
type backed struct {
	still map[string][]byte        // keys that nobody writes any more
	ends  map[string]time.Time     // of them, when they expire
	busy  map[string]*atomic.Int64 // keys that hold a number that rises: the last that was acknowledged
	least map[string]int64         // of them, what was acknowledged when the backup began
	most  map[string]int64         // the last that was tried when it had ended
}

// A taken backup is what cluster backup -o json prints.
type taken struct {
	Backup  string `json:"backup"`
	Keys    int64  `json:"keys"`
	Pieces  int    `json:"pieces"`
	Written int    `json:"written_pieces"`
	Groups  int    `json:"groups"`
	Again   int    `json:"begun_anew"`
	Mended  int    `json:"mended_pieces"`
	LeftOut []any  `json:"left_out"`
	Seconds float64
}

// TestBackup: a cluster is backed up while it is written to and loses a leader, and restored into clusters of five nodes and of one. Each key that
// nobody wrote meanwhile is there as it was, each other one as it was at some moment of the backup.
func TestBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real nodes, of three clusters: make cluster-test")
	}
	parallel(t)
	dir := filepath.Join(t.TempDir(), "backups")
	b := backed{still: make(map[string][]byte), ends: make(map[string]time.Time), busy: make(map[string]*atomic.Int64), least: make(map[string]int64), most: make(map[string]int64)}
	step := func(name string, f func(*testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	step("three nodes", func(t *testing.T) { backUp(t, &b, dir) })
	step("wrong input", func(t *testing.T) { wrongBackups(t, dir) })
	step("into five", func(t *testing.T) { restoreInto(t, &b, dir, 5) })
	step("into one", func(t *testing.T) { restoreInto(t, &b, dir, 1) })
}

// backUp makes backups of a cluster of three nodes.
func backUp(t *testing.T, b *backed, dir string) {
	w := newWorld(t).replicated()
	c := w.dial("west")
	rng := rand.New(rand.NewPCG(*seedFlag, 1))
	some := func(n int) []byte {
		v := make([]byte, n)
		for i := range v {
			v[i] = byte(rng.Uint32())
		}
		return v
	}
	for i := range 300 {
		size := 100 << 10
		if i >= 200 {
			size = rng.IntN(300)
		}
		b.still[fmt.Sprint("still ", i)] = some(size)
	}
	b.still["large"] = some(1800 << 10) // in two pages
	b.still["later"], b.ends["later"] = []byte("x"), time.Now().Add(2*time.Hour)
	b.still["soon"], b.ends["soon"] = []byte("y"), time.Now().Add(5*time.Second)
	for key, value := range b.still {
		o := client.PutOptions{}
		if end, ok := b.ends[key]; ok {
			o.TTL = time.Until(end)
		}
		_, err := c.PutWith(within(t), []byte(key), value, o)
		must(t, err)
	}
	b.still["parts"] = some(20 << 20)
	parted, err := client.Dial(within(t), w.parting("west"))
	must(t, err)
	must(t, parted.Put(within(t), []byte("parts"), b.still["parts"]))
	must(t, parted.Close())

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	tried := make(map[string]*atomic.Int64)
	for i := range 8 {
		key, acked, now := fmt.Sprint("busy ", i), new(atomic.Int64), new(atomic.Int64)
		b.busy[key], tried[key] = acked, now
		wg.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				now.Store(n)
				if err := c.Put(ctx, []byte(key), strconv.AppendInt(nil, n, 10)); err == nil {
					acked.Store(n)
				}
			}
		})
	}
	waitUntil(t, "all writers write", func() bool {
		for _, n := range b.busy {
			if n.Load() == 0 {
				return false
			}
		}
		return true
	})
	run := func(by *Server, more ...string) (r taken) {
		t.Helper()
		out := w.must("east", append([]string{"--server", by.Addr(), "cluster", "backup", dir, "-o", "json"}, more...)...)
		must(t, json.Unmarshal([]byte(out), &r))
		t.Logf("%q: %+v", more, r)
		return r
	}
	if r := run(w.Nodes[0], "--dry-run"); r.Written == 0 || r.Keys < int64(len(b.still)) {
		t.Errorf("a dry run: %+v", r)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a dry run has made the directory")
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	w.backupInterrupted(t, elsewhere)
	var again taken
	must(t, json.Unmarshal([]byte(w.must("east", w.asked("cluster", "backup", elsewhere, "-o", "json")...)), &again))
	if again.Written >= again.Pieces || again.Keys < int64(len(b.still)) {
		t.Errorf("what the run that was interrupted has written is written again: %+v", again)
	}
	for key, n := range b.busy {
		b.least[key] = n.Load()
	}
	first := w.backupBereft(t, dir)
	for key, n := range tried {
		b.most[key] = n.Load()
	}
	if first.Written < first.Pieces || first.Keys < int64(len(b.still)) {
		t.Errorf("the first backup of a place: %+v", first)
	}
	stop()
	wg.Wait()
	second := run(w.Nodes[0])
	third := run(w.Nodes[0])
	if second.Written > 8 || third.Written != 0 || third.Pieces != second.Pieces {
		t.Errorf("8 keys were written since: %+v; and none: %+v", second, third)
	}
	mended := run(w.Nodes[0], "--dry-run")
	if mended.Written != 0 {
		t.Errorf("a dry run: %+v", mended)
	}
	text, err := os.ReadFile(filepath.Join(dir, "backups", third.Backup))
	must(t, err)
	m, err := backup.Parse(text)
	must(t, err)
	flip(t, filepath.Join(dir, m.Pieces[len(m.Pieces)/3].Sum().Name()))
	if mended = run(w.Nodes[0], "--dry-run"); mended.Written != 1 || mended.Mended != 1 {
		t.Errorf("a piece is damaged: %+v", mended)
	}
	if mended = run(w.Nodes[0]); mended.Written != 1 || mended.Mended != 1 {
		t.Errorf("a piece is damaged: %+v", mended)
	}
	if out := w.must("east", "cluster", "verify", dir, "--backup", third.Backup); !strings.Contains(out, "as their names say") {
		t.Errorf("what had the damaged piece: %s", out)
	}
	must(t, os.Remove(filepath.Join(dir, "backups", mended.Backup)))
	// What is restored is the first one.
	for _, r := range []taken{second, third} {
		must(t, os.Remove(filepath.Join(dir, "backups", r.Backup)))
	}
}

// parting is a client that cuts values above a MiB into parts, because a write to a group has 2 MiB at most.
func (w *world) parting(host string) client.Config {
	return client.Config{
		Servers: w.Addrs(), Secret: w.Secret, Fabrics: []rdma.Fabric{w.net.Host(host).Fabric(iwarp.New(iwarp.Options{}))}, Timeout: PatientLimit, PartsAbove: 1 << 20, PartBytes: 1 << 20,
	}
}

// waitUntil waits for something that must come to be.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := within(t); !holds(); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// said runs a program here, and returns all that it says.
func said(t *testing.T, program string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(within(t), program, args...)
	cmd.Env = node.CleanEnv(os.Environ())
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// backupInterrupted interrupts a backup as Ctrl-C does; nothing that it leaves looks like one.
func (w *world) backupInterrupted(t *testing.T, dir string) {
	t.Helper()
	var said bytes.Buffer
	env := []string{"RDMAKV_FABRIC=" + w.opt.Fabric, "RDMAKV_SECRET_FILE=" + w.seen(w.SecretFile())}
	p, err := w.net.Host("east").On().Start(node.Command{
		Path: path.Join(w.opt.Bin, "kvclient"), Args: []string{"--server", w.Nodes[0].Addr(), "cluster", "backup", dir, "--rate", "4"}, Env: env, Stdout: &said, Stderr: &said,
	})
	must(t, err)
	waitUntil(t, "a piece is written", func() bool {
		list, _ := filepath.Glob(filepath.Join(dir, "pieces", "*", "*"))
		return len(list) > 2
	})
	must(t, p.Signal(syscall.SIGINT))
	if code, _ := p.Wait(); code == 0 {
		t.Errorf("it ended well:\n%s", &said)
	}
	if out := w.must("east", "cluster", "backups", "list", dir, "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("what was interrupted is a backup: %s", out)
	}
	if _, code, errOut := w.kvclient(t, w.net.Host("east"), "cluster", "verify", dir); code != 1 || !strings.Contains(errOut, "none that is complete") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// backupBereft backs up into a place that has nothing yet. When the first piece is there, of one of the two groups that are copied first, kvclient is stopped until
// the leader of the first of them is killed, so that group is copied anew. Where this process was so slow that the group was copied by then, all is tried again.
func (w *world) backupBereft(t *testing.T, dir string) (first taken) {
	t.Helper()
	for range 5 {
		must(t, os.RemoveAll(dir))
		r := w.begins(t, "backup", dir, "--rate", "4", "-o", "json")
		waitUntil(t, "a piece is written", func() bool {
			list, _ := filepath.Glob(filepath.Join(dir, "pieces", "*", "*"))
			return len(list) > 0
		})
		must(t, r.Signal(syscall.SIGSTOP))
		leader := w.Node(w.groups(w.Nodes[0])[0].Leader)
		must(t, leader.Kill())
		must(t, r.Signal(syscall.SIGCONT))
		if code := r.ends(t); code != 0 || json.Unmarshal(r.out.Bytes(), &first) != nil {
			t.Fatalf("exit code %d: %s%s", code, &r.out, &r.errOut)
		}
		t.Logf("%s was killed: %+v", leader.ID, first)
		must(t, leader.Start(within(t)))
		if first.Again > 0 {
			return first
		}
	}
	t.Fatal("no leader was lost while its group was copied")
	return first
}

// restoreInto makes a cluster of so many nodes, and restores the backup into it.
func restoreInto(t *testing.T, b *backed, dir string, nodes int) {
	w := newWorld(t)
	for _, name := range []string{"spare", "fifth"} {
		w.Nodes = append(w.Nodes, w.NewServer(fmt.Sprint("n", len(w.Nodes)+1), w.net.Host(name)))
	}
	w.Nodes = w.Nodes[:nodes]
	must(t, w.Start(within(t)))
	init := []string{"--server", w.Nodes[0].Addr(), "cluster", "init"}
	if nodes >= 3 {
		init = append(init, "--replicas", "3")
	}
	for _, n := range w.Nodes {
		init = append(init, n.ID)
	}
	w.must("east", init...)
	restore := []string{"--server", w.Nodes[0].Addr(), "cluster", "restore", dir, "-o", "json"}
	out := w.must("east", restore...)
	var r struct {
		Keys, Expired, Compared, Found int64
		Seconds                        float64
	}
	must(t, json.Unmarshal([]byte(out), &r))
	want := int64(len(b.still) + len(b.busy) - 1) // soon is over, and the backup need not have it
	if t.Logf("%d nodes: %+v", nodes, r); r.Keys != want || r.Expired > 1 || r.Compared != want || r.Found != want {
		t.Errorf("%+v, want %d keys", r, want)
	}
	c := w.dial("west")
	for key, value := range b.still {
		item, err := c.GetItem(within(t), []byte(key))
		if key == "soon" {
			if err == nil {
				t.Error("a key whose time was over is there")
			}
			continue
		}
		if err != nil || !bytes.Equal(item.Value, value) {
			t.Errorf("key %q: %d bytes, %v; want %d bytes", key, len(item.Value), err, len(value))
			continue
		}
		if end, ok := b.ends[key]; ok == item.Expiry.IsZero() || ok && item.Expiry.Sub(end).Abs() > 30*time.Second {
			t.Errorf("key %q expires at %v, want %v", key, item.Expiry, end)
		}
	}
	for key := range b.busy {
		value, err := c.Get(within(t), []byte(key))
		if n, bad := strconv.ParseInt(string(value), 10, 64); err != nil || bad != nil || n < b.least[key] || n > b.most[key] {
			t.Errorf("key %q: %q, %v; %d was acknowledged before, and %d tried last", key, value, err, b.least[key], b.most[key])
		}
	}
	if _, code, errOut := w.kvclient(t, w.net.Host("east"), restore...); code != 1 || !strings.Contains(errOut, "the cluster has keys") {
		t.Errorf("into a cluster that has keys: exit code %d: %s", code, errOut)
	}
	w.must("east", append(restore, "--continue")...)
	must(t, c.Put(within(t), []byte("another"), []byte("key")))
	if _, code, errOut := w.kvclient(t, w.net.Host("east"), append(restore, "--continue")...); code != 1 || !strings.Contains(errOut, "differs from the backup") {
		t.Errorf("into a cluster that others write to: exit code %d: %s", code, errOut)
	}
}

// wrongBackups damages copies of a backup.
func wrongBackups(t *testing.T, dir string) {
	bin := programs.get(t)
	run := func(args ...string) (string, int) {
		t.Helper()
		out, code := said(t, filepath.Join(bin, "kvclient"), append([]string{"cluster"}, args...)...)
		if strings.Count(strings.TrimSpace(out), "\n") > 3 || strings.Contains(out, "panic") {
			t.Errorf("%q says\n%s", args, out)
		}
		return out, code
	}
	if out, code := run("verify", dir); code != 0 || !strings.Contains(out, "as their names say") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	list, err := filepath.Glob(filepath.Join(dir, "backups", "*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	manifest, err := os.ReadFile(list[0])
	must(t, err)
	m, err := backup.Parse(manifest)
	must(t, err)
	piece := m.Pieces[len(m.Pieces)/2].Sum().Name() // others may be of backups that are gone
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, tc := range map[string]struct {
		spoil func(dir string)
		say   string
	}{
		"no mark":        {func(d string) { must(t, os.Remove(filepath.Join(d, "rdmakv-backups"))) }, "has no backups"},
		"a damaged mark": {func(d string) { must(t, os.WriteFile(filepath.Join(d, "rdmakv-backups"), []byte("x"), 0o600)) }, "damaged"},
		"another version": {func(d string) {
			rewrite(t, d, list[0], bytes.Replace(manifest, []byte(`"version":1`), []byte(`"version":2`), 1))
		}, "another version"},
		"half a manifest": {func(d string) { rewrite(t, d, list[0], manifest[:len(manifest)/2]) }, "damaged manifest"},
		"a flipped bit": {func(d string) {
			rewrite(t, d, list[0], bytes.Replace(manifest, []byte(`"keys":1`), []byte(`"keys":3`), 1))
		}, "damaged manifest"},
		"no pieces":       {func(d string) { must(t, os.RemoveAll(filepath.Join(d, "pieces"))) }, "is damaged"},
		"a damaged piece": {func(d string) { flip(t, filepath.Join(d, piece)) }, "is damaged"},
	} {
		copied := filepath.Join(t.TempDir(), "copy")
		must(t, os.CopyFS(copied, os.DirFS(dir)))
		tc.spoil(copied)
		for range 2 {
			for _, command := range []string{"verify", "restore"} {
				if command == "restore" && strings.Contains(tc.say, "is damaged") { // the manifest is not: it is seen behind the look at the cluster, of which there is none
					continue
				}
				if out, code := run(command, copied, "--timeout", "1s", "--server", "127.0.0.1:1"); code != 1 || command == "verify" && !strings.Contains(out, tc.say) {
					t.Errorf("%s, %s: exit code %d: %s", name, command, code, out)
				}
			}
		}
	}
	for _, tc := range []struct {
		say  string
		code int
		args []string
	}{
		{"no such file", 1, []string{"verify", filepath.Join(dir, "none")}},
		{"a directory is needed", 1, []string{"verify", file}},
		{"a directory is needed", 1, []string{"backup", file}},
		{"no such file", 1, []string{"backup", filepath.Join(dir, "none", "below")}},
		{"a directory is needed", 1, []string{"restore", file}},
		{"no backup", 1, []string{"verify", dir, "--backup", "../../x"}},
		{"--rate", 2, []string{"backup", dir, "--rate", "-1"}},
		{"--workers", 2, []string{"restore", dir, "--workers", "0"}},
		{"s3-endpoint", 2, []string{"verify", dir, "--s3-endpoint", "https://x"}},
		{"--workers", 2, []string{"restore", dir, "--workers", "65"}},
		{"--rate", 2, []string{"backup", dir, "--rate", "NaN"}},
		{"--rate", 2, []string{"backup", dir, "--rate", "Inf"}},
		{"s3://BUCKET", 1, []string{"verify", "s3://"}},
		{"accepts 1 arg", 2, []string{"verify"}},
		{"accepts 1 arg", 2, []string{"backup", dir, dir}},
		{"accepts 1 arg", 2, []string{"restore"}},
		{"accepts 1 arg", 2, []string{"backups", "list"}},
		{"empty", 2, []string{"backup", ""}},
		{"empty", 2, []string{"verify", ""}},
	} {
		for range 2 {
			if out, code := run(tc.args...); code != tc.code || !strings.Contains(out, tc.say) {
				t.Errorf("%q: exit code %d: %s", tc.args, code, out)
			}
		}
	}
}

// rewrite writes another manifest into a copy of a backup.
func rewrite(t *testing.T, dir, manifest string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "backups", filepath.Base(manifest)), text, 0o600))
}

// flip flips a bit in the middle of a file.
func flip(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	b[len(b)/2] ^= 4
	must(t, os.WriteFile(name, b, 0o600))
}
