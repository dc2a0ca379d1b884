package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// A tally is a content that counts: how often each name was added. Its entries:
//
//	add NAME   one more; the answer is how many there are
//	grow N     N bytes stand beside the counts
//	later      an entry of a newer program
//	else       refused: "what is that"
type tally struct {
	Counts map[string]int
	Pad    string
}

func (t tally) Encode() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return b
}

func (t tally) Apply(entry []byte) (Content, []byte) {
	word, rest, _ := strings.Cut(string(entry), " ")
	switch word {
	case "add":
		next := tally{map[string]int{}, t.Pad}
		for name, n := range t.Counts {
			next.Counts[name] = n
		}
		next.Counts[rest]++
		return next, []byte(strconv.Itoa(next.Counts[rest]))
	case "grow":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return t, []byte("what is that")
		}
		return tally{t.Counts, strings.Repeat("x", n)}, []byte("grown")
	case "later":
		return nil, []byte("use a newer program")
	}
	return t, []byte("what is that")
}

func load(b []byte) (Content, error) {
	var t tally
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, err
	}
	return t, nil
}

func countOf(c Content, name string) int { return c.(tally).Counts[name] }

const group = consensus.GroupID(0)

// A world is nodes in a bubble of testing/synctest, each with a disk for its log and one for its file.
type world struct {
	t     testing.TB
	first consensus.State // what the group starts from
	nodes []*node

	mu   sync.Mutex
	rng  *rand.Rand
	cuts map[[2]string]bool
	sent int // snapshots
}

// A node is one of them, over its lives.
type node struct {
	w    *world
	name string
	id   consensus.ReplicaID

	mu      sync.Mutex
	disk    *logtest.Disk
	fs      *crashfs.Disk
	from    log.Position // nothing before it is needed
	log     *log.Log
	engine  *driver.Node
	replica *Replica
	up      bool
	fenced  error
	led     []uint64 // terms
	seen    int      // calls of Changed
}

// newWorld makes nodes, of which the first so many have the group.
func newWorld(t testing.TB, seed uint64, nodes, founders int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 11)), cuts: map[[2]string]bool{}}
	w.first = consensus.State{Applied: 1, Term: 1, Config: consensus.Config{Index: 1}}
	for i := range nodes {
		n := &node{w: w, name: fmt.Sprintf("n%d", i+1), id: consensus.ReplicaID(i + 1), disk: logtest.New(logtest.Options{Seed: seed + uint64(i)}), fs: crashfs.New()}
		if err := errors.Join(n.fs.MkdirAll("data", 0o700), syncRoot(n.fs)); err != nil {
			t.Fatal(err)
		}
		w.nodes = append(w.nodes, n)
		if i < founders {
			w.first.Config.Voters = append(w.first.Config.Voters, consensus.Member{ID: n.id, Node: n.name})
		}
	}
	for i, n := range w.nodes {
		n.boot()
		if i < founders {
			if err := n.replica.Create(w.first, tally{}); err != nil {
				t.Fatal(err)
			}
			n.start()
		}
	}
	return w
}

func syncRoot(fsys vfs.FS) error {
	d, err := fsys.OpenDir("/")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (w *world) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *world) cut(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[[2]string{from, to}]
}

// isolate cuts a node off from all, or mends that.
func (w *world) isolate(n *node, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.nodes {
		w.cuts[[2]string{n.name, other.name}], w.cuts[[2]string{other.name, n.name}] = on, on
	}
}

func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// boot opens the log and the file.
func (n *node) boot() {
	n.w.t.Helper()
	l, err := log.Open(log.Config{Dir: n.disk, Create: true, SegmentSize: 4 << 20, From: n.from, Now: time.Now})
	if err == nil {
		err = l.Replay(func(*log.Record) error { return nil })
	}
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		n.w.t.Fatalf("%s: %v", n.name, err)
	}
	var logger *slog.Logger
	if os.Getenv("DOCUMENT_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stdout, nil)).With("node", n.name)
	}
	e := driver.New(driver.Config{Name: n.name, Log: l, Link: &link{n.w, n}, Stream: func(consensus.GroupID) uint64 { return 7 }, Absent: 500 * time.Millisecond, Logger: logger, Fenced: func(_ consensus.GroupID, err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.fenced = err
	}})
	r, err := Open(n.config(e, logger))
	if err != nil {
		n.w.t.Fatalf("%s: %v", n.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log, n.engine, n.replica, n.up = l, e, r, true
}

func (n *node) config(e Engine, logger *slog.Logger) Config {
	return Config{Group: group, Replica: n.id, Engine: e, FS: n.fs, Dir: "data", File: "DOC", Load: load, Logger: logger,
		Changed: func(Content) { n.mu.Lock(); n.seen++; n.mu.Unlock() },
		Led: func(leads bool, term uint64) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if leads {
				n.led = append(n.led, term)
			}
		}}
}

func (n *node) start() {
	n.w.t.Helper()
	if err := n.replica.Start(n.w.t.Context()); err != nil {
		n.w.t.Fatalf("%s: %v", n.name, err)
	}
}

// crash takes the power from a node. What was not synced is there or not; kill: the kernel keeps all that it was given.
func (n *node) crash(kill bool) {
	seed := uint64(n.w.intN(1 << 30))
	n.mu.Lock()
	n.up = false
	l, e, r := n.log, n.engine, n.replica
	if kill {
		n.disk = n.disk.Kill(seed)
		n.fs = n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 1))})
	} else {
		n.disk = n.disk.Crash(seed)
		n.fs = n.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed % 60), RNG: rand.New(rand.NewPCG(seed, 1))})
	}
	n.mu.Unlock()
	if err := errors.Join(e.Close(), r.Stop(false)); err != nil { // of what is no more
		n.w.t.Errorf("%s: %v", n.name, err)
	}
	l.Close(false)
}

// again starts a node that was crashed.
func (n *node) again() {
	n.w.t.Helper()
	n.boot()
	n.start()
}

// close ends the world.
func (w *world) close() {
	for _, n := range w.nodes {
		if !n.isUp() {
			continue
		}
		n.mu.Lock()
		n.up = false
		n.mu.Unlock()
		if err := errors.Join(n.replica.Stop(false), n.engine.Close(), n.log.Close(true)); err != nil {
			w.t.Errorf("%s: %v", n.name, err)
		}
		if n.fenced != nil {
			w.t.Errorf("%s: fenced: %v", n.name, n.fenced)
		}
	}
}

func (n *node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up
}

func (n *node) now() (*Replica, *driver.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil, nil
	}
	return n.replica, n.engine
}

// leader waits for one whose engine says that it leads in the highest term.
func (w *world) leader() *node {
	w.t.Helper()
	for range 2000 {
		var best *node
		term := uint64(0)
		for _, n := range w.nodes {
			r, _ := n.now()
			if r == nil {
				continue
			}
			if s, err := r.Status(); err == nil && s.Leads && s.Term > term && r.State().Term == s.Term {
				best, term = n, s.Term
			}
		}
		if best != nil {
			return best
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("nobody leads for 20 s")
	return nil
}

// do has an entry applied, by whoever leads.
func (w *world) do(entry string) string {
	w.t.Helper()
	var last error
	for range 50 {
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		answer, err := w.leader().replica.Do(ctx, []byte(entry))
		cancel()
		if err == nil {
			return string(answer)
		}
		last = err
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatalf("%.40q is not applied: %v", entry, last)
	return ""
}

// settle waits until all nodes that are up and of the group have applied the same, and their files have it.
func (w *world) settle() {
	w.t.Helper()
	text := ""
	for range 3000 {
		at := w.leader().replica.State()
		text = ""
		for _, list := range [2][]consensus.Member{at.Config.Voters, at.Config.Learners} {
			for _, m := range list {
				r, _ := w.node(m.Node).now()
				if r == nil {
					text += " " + m.Node + " is down"
					continue
				}
				if s, err := r.Status(); err != nil || r.State().Applied != at.Applied || s.Saved != at.Applied {
					text += fmt.Sprintf(" %s is at %d, saved %d, of %d: %v", m.Node, r.State().Applied, s.Saved, at.Applied, err)
				}
			}
		}
		if text == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("the replicas are not alike after 30 s:%s", text)
}

// A link is a node's end of the network.
type link struct {
	w *world
	n *node
}

// Send implements consensus.Link: a message takes up to a millisecond.
func (l *link) Send(to string, _ bool, b []byte) {
	if l.w.cut(l.n.name, to) {
		return
	}
	b = append([]byte(nil), b...)
	time.AfterFunc(time.Duration(l.w.intN(int(time.Millisecond))), func() {
		if _, e := l.w.node(to).now(); e != nil {
			_ = e.Deliver(l.n.name, b)
		}
	})
}

// Snapshot implements consensus.Link.
func (l *link) Snapshot(ctx context.Context, to string, h consensus.SnapshotHead, data io.Reader) error {
	_, e := l.w.node(to).now()
	if e == nil || l.w.cut(l.n.name, to) || l.w.cut(to, l.n.name) {
		return errors.New("the network is cut")
	}
	l.w.mu.Lock()
	l.w.sent++
	l.w.mu.Unlock()
	return e.Receive(ctx, l.n.name, h, data)
}
