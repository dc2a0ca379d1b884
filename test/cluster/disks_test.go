package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// What becomes of a cluster with replicas whose disks hang, are slow, or are full.

// TestReplicaDisks: the disk of a leader hangs, then that of a follower, under load; then the disk of a leader is slow, and all are; then disks are full:
// that of a leader, that of a follower, all. Groups whose leader cannot write are led by others, if these can; nothing acknowledged is lost, and when the disk is well again the node is too.
// It runs alone, because it counts terms: a machine without processors for leaders elects others, whatever their disks do.
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
	s.scene("a leader's is slow", func(t *testing.T) { s.slows(t, s.leading(t, 1)) })
	s.scene("all are slow", func(t *testing.T) { s.slows(t, s.Nodes...) })
	s.lift()
	t.Run("a leader's is full", s.leaderIsFull)
	t.Run("another one's is full", s.followerIsFull)
	t.Run("all are full", s.allAreFull)
}

// slows makes the disks of nodes slow for some seconds: what is synced waits for up to a tenth of a second, again and again. Keys are served
// meanwhile, by whoever leads.
func (s *siege) slows(t *testing.T, nodes ...*Server) {
	const slow, quick = 100 * time.Millisecond, 20 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var pulses atomic.Int32
	wg.Go(func() {
		for ; ctx.Err() == nil; pulses.Add(1) {
			for _, n := range nodes {
				if out, err := exec.Command("fsfreeze", "-f", n.Dir()).CombinedOutput(); err != nil {
					t.Errorf("the disk of %s is not frozen: %v: %s", n.ID, err, out)
				}
			}
			pause(ctx, slow)
			for _, n := range nodes {
				if out, err := exec.Command("fsfreeze", "-u", n.Dir()).CombinedOutput(); err != nil {
					t.Errorf("the disk of %s does not thaw: %v: %s", n.ID, err, out)
				}
			}
			pause(ctx, quick)
		}
	})
	thaw := func() {
		stop()
		wg.Wait()
	}
	defer thaw()        // also when serves ends the scene
	enough := within(t) // a machine without a processor for fsfreeze takes its time
	for began := time.Now(); (time.Since(began) < 3*time.Second || pulses.Load() < 5 && enough.Err() == nil) && !t.Failed(); {
		s.serves(t, "slow")
		pause(t.Context(), 200*time.Millisecond)
	}
	thaw()
	if n := pulses.Load(); n < 5 {
		t.Errorf("the disks were slow %d times, expected many: nothing was tried", n)
	}
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
