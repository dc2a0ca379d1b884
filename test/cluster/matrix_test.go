package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/linear"
)

// What is done to a cluster with replicas beside what TestReplicas does: links that lose or carry one way, disks that hang, are full, are gone or were set
// back. Each scene is under load, whose histories are judged.

var roundsFlag = flag.Int("rounds", 1, "how often each fault of the matrix is done to each node in question")

// A siege is a cluster with replicas under load, to which one thing after the other is done.
type siege struct {
	*world
	load  *Load
	conns []*Conn
	probe *Conn
}

// besiege starts a cluster and a load. change may put data directories on disks of their own.
func besiege(t *testing.T, name string, change func(*world)) *siege {
	t.Helper()
	w := newWorld(t)
	if change != nil {
		change(w)
	}
	s := &siege{world: w.replicated()}
	s.load, s.conns = w.startLoad(name)
	s.probe = w.dial("west")
	s.serves(t, "before anything goes wrong")
	return s
}

// startLoad starts a load of two clients on each host.
func (w *world) startLoad(name string) (load *Load, conns []*Conn) {
	var stores []linear.Store
	for _, host := range clientHosts {
		for range 2 {
			conns = append(conns, w.dial(host))
			stores = append(stores, conns[len(conns)-1].Store())
		}
	}
	return StartLoad(w.t.Context(), LoadOptions{Name: name + "-" + w.net.Kind(), Seed: *seedFlag, Stores: stores, Dir: outDir(), Pace: 20 * time.Millisecond, Replicas: true}), conns
}

// serves puts and gets keys of all nodes.
func (s *siege) serves(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()
	took, err := served(ctx, s.probe, when)
	if err != nil {
		out, _, errOut := s.kvclient(t, s.net.Host("east"), "--server", s.Nodes[0].Addr(), "cluster", "status")
		t.Fatalf("%s: %v\n%s%s", when, err, out, errOut)
	}
	t.Logf("%s: the slowest of 12 keys took %v", when, took.Round(time.Millisecond))
}

// scene does a fault, and waits until the cluster is as it was before.
func (s *siege) scene(name string, f func(t *testing.T)) {
	for range *roundsFlag {
		if s.t.Failed() {
			return // what comes after tells nothing
		}
		s.t.Run(name, func(t *testing.T) {
			began := time.Now()
			f(t)
			s.serves(t, "afterwards")
			s.allTakePart(t)
			t.Logf("it took %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// lift stops the load and judges it.
func (s *siege) lift() {
	s.t.Helper()
	judge(s.t, s.load)
}

// judge stops a load and judges it.
func judge(t *testing.T, load *Load) {
	t.Helper()
	v, err := load.Finish(within(t))
	t.Log(v)
	if err != nil || len(v.Wrong) > 0 {
		t.Errorf("the load: %v; histories that contradict every order: %v", err, v.Wrong)
	}
	if v.Ops < 100 || v.Ops == v.Refused {
		t.Errorf("too little was done: %v", v)
	}
}

// others are the nodes beside one.
func (w *world) othersOf(s *Server) (list []*Server) {
	for _, o := range w.Nodes {
		if o != s {
			list = append(list, o)
		}
	}
	return list
}

// TestReplicaLinks: links between nodes that carry one way alone, or lose and delay what they carry, and a client that reaches two nodes of three.
func TestReplicaLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts links: make cluster-test")
	}
	s := besiege(t, "replica-links", func(w *world) { w.needsFaults() })
	s.scene("leader to followers cut", func(t *testing.T) {
		lead := s.leading(t, 0)
		for _, o := range s.othersOf(lead) {
			must(t, s.net.CutOneWay(lead.Place().Name(), o.Place().Name()))
		}
		s.serves(t, "the others do not hear "+lead.ID)
		must(t, s.net.Heal())
	})
	s.scene("followers to leader cut", func(t *testing.T) {
		lead := s.leading(t, 1)
		for _, o := range s.othersOf(lead) {
			must(t, s.net.CutOneWay(o.Place().Name(), lead.Place().Name()))
		}
		s.serves(t, lead.ID+" does not hear the others")
		must(t, s.net.Heal())
	})
	s.scene("one frame of ten is lost, the others are late", func(t *testing.T) {
		for i, a := range s.Nodes {
			for _, b := range s.Nodes[i+1:] {
				must(t, s.net.Lose(a.Place().Name(), b.Place().Name(), 0.1))
				must(t, s.net.Delay(a.Place().Name(), b.Place().Name(), 5*time.Millisecond))
			}
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; {
			s.serves(t, "losing and late")
			pause(t.Context(), 300*time.Millisecond)
		}
		must(t, s.net.Heal())
	})
	s.scene("a client is cut from one node", func(t *testing.T) {
		must(t, s.net.Cut("east", s.leading(t, 2).Place().Name()))
		pause(t.Context(), 1500*time.Millisecond) // the load calls on from there
		s.serves(t, "cut from a client")
		must(t, s.net.Heal())
	})
	s.lift()
}

// TestReplicaRestarts: all nodes are stopped and started, one after the other, and no call fails; the longest one is told.
func TestReplicaRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	s := besiege(t, "replica-restarts", nil)
	ctx, stop := context.WithCancel(t.Context())
	var longest time.Duration
	var calls int
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ctx.Err() == nil && failed == nil; calls++ {
			each, cancel := context.WithTimeout(t.Context(), servedWithin)
			key, began := fmt.Appendf(nil, "restarting %d", calls%64), time.Now()
			failed = s.probe.Put(each, key, key)
			if got, err := s.probe.Get(each, key); failed == nil && (err != nil || string(got) != string(key)) {
				failed = fmt.Errorf("%q is read: %w", got, err)
			}
			cancel()
			longest = max(longest, time.Since(began))
		}
	})
	for _, n := range s.Nodes {
		s.scene("restart of "+n.ID, func(t *testing.T) {
			must(t, n.Stop(patience))
			must(t, n.Start(within(t)))
		})
	}
	stop()
	wg.Wait()
	t.Logf("%d calls meanwhile, the longest put and get of a key took %v", calls, longest.Round(time.Millisecond))
	if failed != nil || calls == 0 {
		t.Errorf("of %d calls meanwhile: %v", calls, failed)
	}
	s.lift()
}

// TestReplicaDirectories: a node comes back under its old name without its data directory, or with an older copy of it. It takes part in nothing, and says
// why; the others go on, nothing is lost, and with its newest directory it is back.
func TestReplicaDirectories(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nodes: make cluster-test")
	}
	s := besiege(t, "replica-directories", nil)
	aside := func(t *testing.T, n *Server) (newest string) {
		t.Helper()
		newest = n.Dir() + ".newest"
		must(t, os.Rename(n.Dir(), newest))
		return newest
	}
	back := func(t *testing.T, n *Server, newest string) {
		t.Helper()
		must(t, os.RemoveAll(n.Dir()))
		must(t, os.Rename(newest, n.Dir()))
		must(t, n.Start(within(t)))
	}
	s.scene("wiped", func(t *testing.T) {
		n := s.Nodes[1]
		must(t, n.Kill())
		newest := aside(t, n)
		must(t, n.Start(within(t)))
		s.serves(t, "a node without its directory is there")
		if said := n.Said(); !strings.Contains(said, "its data directory is not the one that it had") {
			t.Errorf("it does not say that it has nothing: %s", said)
		}
		if code, text := s.admin(n, "GET", "/readyz"); code != 503 || !strings.Contains(text, "old one") {
			t.Errorf("/readyz: %d %s", code, text)
		}
		if out, code, _ := s.kvclient(t, s.net.Host("east"), "--server", s.Nodes[0].Addr(), "cluster", "check", "--compare=false"); code != 1 || !strings.Contains(out, "start it with its old data directory") {
			t.Errorf("cluster check: %d\n%s", code, out)
		}
		for _, g := range s.groups(s.Nodes[0]) {
			if g.Leader == n.ID {
				t.Errorf("it leads group %d", g.ID)
			}
		}
		must(t, n.Kill())
		back(t, n, newest)
	})
	s.scene("set back", func(t *testing.T) {
		n := s.Nodes[2]
		must(t, n.Stop(patience))
		old := n.Dir() + ".old"
		must(t, os.CopyFS(old, os.DirFS(n.Dir())))
		must(t, n.Start(within(t)))
		s.serves(t, "what the copy does not have")
		s.allTakePart(t)
		must(t, n.Kill())
		for _, o := range s.othersOf(n) { // so that no gossip remembers it
			must(t, o.Kill())
		}
		newest := aside(t, n)
		must(t, os.Rename(old, n.Dir()))
		for _, o := range s.othersOf(n) {
			must(t, o.Start(within(t)))
		}
		err := n.Start(within(t))
		code := 3
		if err == nil {
			code, err = n.Process().WaitExit(patience)
		} else if !strings.Contains(err.Error(), "older copy") {
			t.Errorf("it does not start for another reason: %v", err)
			err = nil
		}
		if said := n.Said(); code != 3 || err != nil || !strings.Contains(said, "older copy") {
			t.Errorf("it ends with %d, %v: %s", code, err, said)
		}
		n.ended()
		s.serves(t, "a node with an older copy was there")
		back(t, n, newest)
	})
	s.lift()
}

// TestReplicaDisks: the disk of a leader hangs, then that of a follower, under load; then disks are full: that of a leader, that of a
// follower, all. Groups whose leader cannot write are led by others, if these can; nothing acknowledged is lost, and when the disk is well again the node is too.
func TestReplicaDisks(t *testing.T) {
	if testing.Short() {
		t.Skip("freezes disks: make cluster-test")
	}
	if why := cannotMount(); why != "" {
		t.Skip(why)
	}
	s := besiege(t, "replica-disks", func(w *world) {
		for i, n := range w.Nodes {
			image := filepath.Join(w.dir, fmt.Sprint("disk", i))
			must(t, os.Mkdir(n.Dir(), 0o700))
			must(t, os.WriteFile(image, nil, 0o600))
			must(t, os.Truncate(image, 1<<30))
			run(t, "mkfs.ext4", "-q", "-F", image)
			run(t, "mount", "-o", "loop", image, n.Dir())
			t.Cleanup(func() { run(t, "umount", "-l", n.Dir()) })
		}
		t.Cleanup(func() { must(t, w.Rig.Close()) }) // before what they have open is unmounted
	})
	hang := func(t *testing.T, n *Server) {
		run(t, "fsfreeze", "-f", n.Dir())
		frozen := true
		thaw := func() {
			if frozen {
				frozen = false
				run(t, "fsfreeze", "-u", n.Dir())
			}
		}
		defer thaw()
		s.serves(t, "the disk of "+n.ID+" hangs")
		pause(t.Context(), time.Second)
		s.serves(t, "it hangs still")
		thaw()
	}
	s.scene("a leader's hangs", func(t *testing.T) { hang(t, s.leading(t, 0)) })
	s.scene("another one's hangs", func(t *testing.T) { hang(t, s.othersOf(s.leading(t, 0))[0]) })
	s.lift()
	t.Run("a leader's is full", s.leaderIsFull)
	t.Run("another one's is full", s.followerIsFull)
	t.Run("all are full", s.allAreFull)
}

// crowd fills the disk of a node, and returns a function that gives the room back.
func crowd(t *testing.T, n *Server) (relieve func()) {
	t.Helper()
	filler := filepath.Join(n.Dir(), "filler")
	for size := 1 << 30; size >= 4<<10; size /= 2 {
		for i := 0; exec.Command("fallocate", "-l", fmt.Sprint(size), fmt.Sprint(filler, size, "-", i)).Run() == nil; i++ {
		}
	}
	return func() {
		left, err := filepath.Glob(filler + "*")
		must(t, err)
		for _, path := range left {
			must(t, os.Remove(path))
		}
	}
}

// taken puts until a put is taken. Until then the disk may be full.
func (s *siege) taken(t *testing.T, when string, key []byte, value string) {
	t.Helper()
	refused := 0
	for ctx := within(t); ; pause(ctx, 100*time.Millisecond) {
		err := s.probe.Put(ctx, key, []byte(value))
		if err == nil {
			break
		}
		if refused++; !errors.Is(err, client.ErrNoSpace) {
			t.Fatalf("%s: %v", when, err)
		}
	}
	t.Logf("%s: a put of %q is taken, %d were refused", when, key, refused)
}

// has gets keys that have to be there.
func (s *siege) has(t *testing.T, when string, acknowledged map[string]string) {
	t.Helper()
	for key, value := range acknowledged {
		if got, err := s.probe.Get(within(t), []byte(key)); err != nil || string(got) != value {
			t.Errorf("%s: %q is %.40q, %v, and %.40q was acknowledged", when, key, got, err, value)
		}
	}
}

// leadsNothing waits until each group is led, and none by a node, whose disk is full.
func (s *siege) leadsNothing(t *testing.T, n *Server) {
	t.Helper()
	for ctx := within(t); ; pause(ctx, 100*time.Millisecond) {
		led := 0
		for _, g := range s.groups(s.othersOf(n)[0]) {
			if g.Leader == n.ID || g.Leader == "" {
				led++
			}
		}
		if led == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s leads %d groups, and its disk is full", n.ID, led)
		}
	}
}

// leaderIsFull: the disk of a leader is full. Its groups go to nodes that have room, one after the other, and their puts are taken there.
func (s *siege) leaderIsFull(t *testing.T) {
	n := s.leading(t, 0)
	keys := s.keysLed(t, s.probe, n.ID, 8)
	relieve := crowd(t, n)
	acknowledged := map[string]string{}
	for i, key := range keys {
		s.taken(t, "the disk of "+n.ID+" is full", key, fmt.Sprint("full ", i))
		acknowledged[string(key)] = fmt.Sprint("full ", i)
	}
	s.leadsNothing(t, n)
	s.has(t, "it leads nothing", acknowledged)
	for i := range 100 { // nobody refuses any more
		key := keys[i%len(keys)]
		acknowledged[string(key)] = fmt.Sprint("elsewhere ", i)
		must(t, s.probe.Put(within(t), key, []byte(acknowledged[string(key)])))
	}
	relieve()
	s.has(t, "there is room", acknowledged)
	s.serves(t, "there is room")
	s.allTakePart(t)
}

// followerIsFull: the disk of a node that leads nothing any more is full while more is put than its log takes. It falls behind, does not end, and catches
// up when there is room.
func (s *siege) followerIsFull(t *testing.T) {
	n := s.leading(t, 1)
	relieve := crowd(t, n)
	s.leadsNothing(t, n)
	var keys [][]byte
	for i := range 8 {
		keys = append(keys, fmt.Appendf(nil, "beside a full disk %d", i))
	}
	value := strings.Repeat("v", 32<<10)
	acknowledged := map[string]string{}
	began := time.Now()
	mib := 0
	for ; mib < 256 && s.lagOf(t, n) < 20; mib += 8 {
		var wg sync.WaitGroup
		for i, key := range keys {
			text := fmt.Sprint(i, mib, value)
			acknowledged[string(key)] = text
			wg.Go(func() {
				for range 32 {
					if err := s.probe.Put(within(t), key, []byte(text)); err != nil {
						t.Errorf("beside a full disk: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	if t.Logf("%d MiB were put in %v", mib, time.Since(began).Round(time.Millisecond)); mib == 256 {
		t.Errorf("%s is not behind, and its disk is full", n.ID)
	}
	select {
	case <-n.Process().Exited():
		t.Fatalf("%s has ended: %s", n.ID, n.Said())
	default:
	}
	s.has(t, "a follower's disk is full", acknowledged)
	relieve()
	s.serves(t, "there is room")
	s.allTakePart(t)
	s.has(t, "there is room", acknowledged)
}

// lagOf is how many entries a replica of a node is behind its leader at most.
func (s *siege) lagOf(t *testing.T, n *Server) (most uint64) {
	t.Helper()
	for _, g := range s.groups(s.othersOf(n)[0]) {
		for _, r := range g.Replicas {
			if r.Node == n.ID {
				most = max(most, r.Lag)
			}
		}
	}
	return most
}

// allAreFull: all disks are full. Puts are refused, gets go on, each group has a leader, and puts go on when there is room.
func (s *siege) allAreFull(t *testing.T) {
	var relieve []func()
	key := s.keysLed(t, s.probe, s.leading(t, 0).ID, 1)[0]
	s.taken(t, "before", key, "before")
	for _, n := range s.Nodes {
		relieve = append(relieve, crowd(t, n))
	}
	for ctx := within(t); ; pause(ctx, 50*time.Millisecond) {
		if err := s.probe.Put(ctx, key, []byte("before")); errors.Is(err, client.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatalf("a put: %v", err)
		}
	}
	terms := func() map[uint32]uint64 {
		all := map[uint32]uint64{}
		for _, g := range s.groups(s.Nodes[0]) {
			if g.Leader == "" {
				t.Errorf("group %d has no leader, because all disks are full", g.ID)
			}
			all[g.ID] = g.Term
		}
		return all
	}
	pause(t.Context(), 2*time.Second) // all have heard of all
	before := terms()
	for range 50 {
		s.has(t, "all are full", map[string]string{string(key): "before"})
		pause(t.Context(), 100*time.Millisecond)
	}
	for id, term := range terms() {
		if term != before[id] {
			t.Errorf("group %d has gone from term %d to %d, and all disks are full", id, before[id], term)
		}
	}
	for _, f := range relieve {
		f()
	}
	for ctx := within(t); ; pause(ctx, 100*time.Millisecond) { // each node looks once a second
		_, err := served(ctx, s.probe, "there is room")
		if err == nil {
			break
		}
		if !errors.Is(err, client.ErrNoSpace) || ctx.Err() != nil {
			t.Fatalf("there is room: %v", err)
		}
	}
	s.allTakePart(t)
}

// cannotMount says why this machine gives no file systems of their own to nodes; "": it does, and a mount that fails is a failure.
func cannotMount() string {
	if runtime.GOOS != "linux" || os.Getuid() != 0 || os.Getenv("HOSTS_ENTERED") != "" {
		return "file systems are mounted by root alone"
	}
	loop, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Sprintf("there are no loop devices: %v", err)
	}
	loop.Close()
	for _, tool := range []string{"mkfs.ext4", "mount", "fsfreeze", "fallocate"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("apt-get install e2fsprogs util-linux mount: %v", err)
		}
	}
	return ""
}

// run runs a program that has to succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
