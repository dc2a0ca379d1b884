package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The test binary is its own worker, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := work(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const root = "../.."

// TestConstants: each constant that the page names is set in the code by the line that is
// written down here, and the numbers that are computed with are those.
func TestConstants(t *testing.T) {
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, c := range constants() {
		text, err := os.ReadFile(filepath.Join(root, c.file))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(words(string(text)), words(c.line)) {
			t.Errorf("%s: %s has no line %q: correct constants.go and model.go, and run make scale", c.name, c.file, c.line)
		}
	}
	lan := memberlist.DefaultLANConfig()
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"probe interval", probeInterval, lan.ProbeInterval},
		{"gossip nodes", gossipNodes, lan.GossipNodes},
		{"push/pull interval", pushPullInterval, lan.PushPullInterval},
		{"suspicion", suspicionMult, lan.SuspicionMult},
		{"longest suspicion", suspicionMax, lan.SuspicionMaxTimeoutMult},
		{"retransmits", retransmitMult, lan.RetransmitMult},
		{"page entries", layout.DirPageEntries, 512},
	} {
		if c.got != c.want {
			t.Errorf("%s: the page computes with %v, and it is %v", c.name, c.got, c.want)
		}
	}
}

// TestModel: what is computed, at points where it is known.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"place of an item of 24 + 16 + 64 B", itemBytes(), 104},
		{"translations of 1 GiB in pages of 4 KiB", translations(1<<30, 4<<10), uint64(2 << 20)},
		{"translations of 1 GiB in pages of 2 MiB", translations(1<<30, 2<<20), uint64(4 << 10)},
		{"translations of a byte", translations(1, 4<<10), uint64(8)},
		{"default location cache", cacheBytes(2_000_000), 285_715 * 64},
		{"push/pull of 32", pushPull(32), 30 * time.Second},
		{"push/pull of 33", pushPull(33), time.Minute},
		{"push/pull of 1000", pushPull(1000), 3 * time.Minute},
		{"sessions of the only fabric", sessionsOf(1), 5006},
		{"sessions of one of two", sessionsOf(2), 2503},
		{"news among 9", newsBytes(9, 9, 100, 399), 5*400 + 4*(400+73+9+100)},
		{"repeats among 9", repeats(9), 4},
		{"repeats among 1000", repeats(1000), 16},
		{"directory pages of few segments", dirPages(10, 32), 32},
		{"directory pages of 1,025 segments a shard", dirPages(32*1025, 32), 128},
		{"directory pages of too many", dirPages(1<<30, 32), layout.DirCachePages},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if least, most := suspicion(1000); least != 12*time.Second || most != 72*time.Second {
		t.Errorf("a member of 1000 is suspected for %v to %v", least, most)
	}
	if n, size := regionsFor(1 << 30); n != 8 || size != 128<<20 {
		t.Errorf("1 GiB has %d regions of %d", n, size)
	}
	exact := 0.0
	for i := 1.0; i <= 50; i++ {
		exact += 1 / i
	}
	if got := harmonic(50); got < exact || got > exact*1.05 {
		t.Errorf("harmonic(50) is %v", got)
	}
	if a, b := zipf(1000, 1000), zipf(100, 1000); a != 1 || b < 0.6 || b > 0.75 {
		t.Errorf("all of the keys have %v of the gets, a tenth of them %v", a, b)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-keys", "100k, 2M,1000", "-sessions", "", "-big"}, io.Discard)
	if err != nil || !slices.Equal(o.keys, []int{100_000, 2_000_000, 1000, bigKeys}) || o.sessions != nil || !slices.Equal(o.members, []int{10, 30, 100}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-keys", "x"}, {"-keys", "999"}, {"-keys", "-1M"}, {"-keys", "k"}, {"-keys", "9999999999999M"}, {"-sessions", "5000"}, {"-members", "1"}, {"more"}} {
		if o, err := parse(bad, io.Discard); err == nil {
			t.Errorf("%q is taken: %+v", bad, o)
		}
	}
}

// TestFits: what does not fit is told, each thing with what it wants and what there is.
func TestFits(t *testing.T) {
	enough := machine{memory: 24 << 30, disk: 80 << 30, files: 20_000}
	o, err := parse([]string{"-big"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := fits(enough, o); err != nil {
		t.Error(err)
	}
	err = fits(machine{memory: 1 << 30, disk: 1 << 30, files: 1024}, o)
	for _, want := range []string{"50000000 keys want 10560 MiB of memory, and 1024 are free", "of disk, and 1024 are free",
		"4000 sessions want 16100  of file descriptors (ulimit -Hn), and 1024", "4000 sessions want 5024 MiB of memory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if m, err := thisMachine(t.TempDir()); err != nil || m.memory == 0 || m.disk == 0 || m.files == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "MemAvailable: x kB\n", "MemFree: 1 kB\n"} {
		if n, err := servers.Available(bad); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

// TestPut: a result takes the place of the one of its size, and the order stays.
func TestPut(t *testing.T) {
	var list []keysResult
	for i, n := range []int{3, 1, 2, 3} {
		list = put(list, keysResult{Keys: n, Regions: i}, func(r keysResult) int { return r.Keys })
	}
	if len(list) != 3 || list[0].Keys != 1 || list[1].Keys != 2 || list[2].Regions != 3 {
		t.Errorf("%+v", list)
	}
}

// TestPage: the page of the repository has a place for each table, and what stands there
// is what the results of the repository give. Results are written and read back as they were.
func TestPage(t *testing.T) {
	res, err := readResults(filepath.Join(root, resultsFile))
	if err != nil || len(res.Keys) == 0 || len(res.Sessions) == 0 || len(res.Members) == 0 {
		t.Fatalf("results without all parts: %v", err)
	}
	page, err := os.ReadFile(filepath.Join(root, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := writeResults(filepath.Join(dir, resultsFile), res); err != nil {
		t.Fatal(err)
	}
	again, err := readResults(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	write := func(page []byte) error {
		if err := os.MkdirAll(filepath.Join(dir, "docs"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, pageFile), page, 0o600); err != nil {
			return err
		}
		return writePage(dir, again)
	}
	if err := write(page); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, pageFile)); err != nil || !bytes.Equal(got, page) {
		t.Errorf("docs/scale.md is not what bench/results/scale.json gives: go run ./bench/scale -page (%v)", err)
	}
	if err := write([]byte(tables[0].begin())); !errors.Is(err, report.ErrNoPlace) {
		t.Errorf("a page without places: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, resultsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(filepath.Join(dir, resultsFile)); err == nil {
		t.Error("results that cannot be read are not told")
	}
	if none, err := readResults(filepath.Join(dir, "missing")); err != nil || none.Keys != nil {
		t.Errorf("%+v, %v", none, err)
	}
}

// TestWorkerTells: a worker's failure arrives as what it was.
func TestWorkerTells(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"Open":1,"Target":{"Fabric":"pigeon"}}` + "\n" + `{}` + "\n")
	if err := work(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(&out)
	var a, b answer
	if err := errors.Join(answers.Decode(&a), answers.Decode(&b)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.Error, "pigeon") || b.Error != "" || b.Process.Resident == 0 || b.Process.Files == 0 {
		t.Errorf("%+v, %+v", a, b)
	}
	if err := work(t.Context(), strings.NewReader("x"), io.Discard); err == nil {
		t.Error("no order is taken for one")
	}
}

// TestMembers measures three members: a push/pull has as many bytes as computed, and each
// member sends a probe and an answer a second.
func TestMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a push/pull interval")
	}
	t.Parallel()
	// A member's first push/pull by the clock comes 30 to 60 s behind its start, and they are watched from 16 s on.
	o := options{turn: 4 * time.Second, watch: 45 * time.Second, log: io.Discard}
	r, err := measureMembers(t.Context(), o, 3)
	if err != nil {
		t.Fatal(err)
	}
	want := float64(stateBytes(3, len("node-0000"), r.Meta, r.Table))
	if got := r.StreamBytes / 2; r.Streams == 0 || got < 0.8*want || got > 1.25*want {
		t.Errorf("one way of a push/pull has %.0f B, computed are %.0f: %+v", got, want, r)
	}
	if r.Packets < 1 || r.Packets > 4 || r.PacketBytes == 0 || r.Table50 > r.TableLast || r.DeadLast == 0 || r.View == 0 || r.ChangeBytes <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestNode measures a small store and a few sessions of a real kvserver.
func TestNode(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts kvserver")
	}
	t.Parallel()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, root+"/cmd/kvserver").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := options{bin: bin, dir: t.TempDir(), rest: 100 * time.Millisecond, turn: time.Second, quiet: time.Second, log: io.Discard}
	k, err := measureKeys(t.Context(), o, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if k.Items < 2000*uint64(itemBytes()) || k.Index == 0 || k.MemoryUsed < k.Items+k.Index || k.Registered < k.MemoryUsed || k.Regions == 0 ||
		k.Resident <= k.Empty || k.Log+k.Base == 0 || k.FirstGet <= 0 || k.Full < k.FirstGet || len(k.Gets) != 2 || k.Gets[0].CacheHit < 0.5 {
		t.Errorf("%+v", k)
	}
	for _, fabric := range fabrics {
		s, err := measureSessions(t.Context(), o, fabric, 5)
		if err != nil {
			t.Fatal(err)
		}
		if s.Server.Goroutines < 5 || s.Server.Files < 5 || s.Receives <= 0 || s.Client.Goroutines < 5 || s.Open <= 0 {
			t.Errorf("%+v", s)
		}
	}
}
