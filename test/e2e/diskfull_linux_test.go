package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/node"
)

var fullsFlag = flag.Int("fulls", 5, "how many times TestDiskFull takes the room of a disk")

// smallDisk marks a test program that TestDiskFull has started in a mount namespace.
const smallDisk = "E2E_SMALL_DISK"

// fullLeft is what TestDiskFull leaves of the disk, in turn: nothing, less than a table, less
// than a segment of the log, less than deletes need, and less than puts need, which is 64 MiB.
var fullLeft = []int64{0, 200 << 10, 700 << 10, 20 << 20, 45 << 20}

// TestDiskFull takes the room of a server's disk, a tmpfs of its own, while the server is under
// load: where the log wants its next segment, a checkpoint writes tables, the base takes them
// in, or the ledger is written, as it comes. Writes are refused with an error that says so,
// reads go on, so do deletes while there is some room, and when there is room again everything
// goes on by itself. Some of the servers are killed meanwhile, and start on the full disk, or
// say why they do not. Nothing that was acknowledged is lost.
func TestDiskFull(t *testing.T) {
	if elsewhere != nil {
		t.Skip("about a disk, which is here")
	}
	if os.Getenv(smallDisk) == "" {
		inNamespace(t)
		return
	}
	d := mountDisk(t, 224)
	fulls := *fullsFlag
	if testing.Short() {
		fulls = min(fulls, 2)
	}
	t.Logf("%d times, seed %d", fulls, *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 28))
	f := &fullDisk{t: t, disk: d, rnd: rnd, units: killUnits(), dir: filepath.Join(d.dir, "d"), met: make(map[string]int)}
	for i := range fulls {
		f.round(i, fullLeft[i%len(fullLeft)])
	}
	t.Logf("the servers found no room for: %v", f.met)
	t.Run("upgrade", func(t *testing.T) { upgradeFull(t, d) })
}

// inNamespace runs this test in a mount namespace, where it may mount.
func inNamespace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run", "^" + t.Name() + "$", "-bin", bin, "-fabric", *fabricFlag, "-host", *hostFlag,
		"-seed", fmt.Sprint(*seedFlag), "-fulls", fmt.Sprint(*fullsFlag), fmt.Sprintf("-test.short=%v", testing.Short())}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), smallDisk+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.Process == nil && os.Getenv("RDMAKV_REQUIRE_NAMESPACES") == "":
		t.Skipf("no user namespaces here: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// A smallFS is a file system of its own.
type smallFS struct {
	t   *testing.T
	dir string
}

func mountDisk(t *testing.T, mib int) *smallFS {
	t.Helper()
	d := &smallFS{t: t, dir: t.TempDir()}
	if err := syscall.Mount("none", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", mib)); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *smallFS) free() int64 {
	d.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &st); err != nil {
		d.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// leave takes the room of the disk but for so many bytes, by a file; negative: it gives all back.
func (d *smallFS) leave(bytes int64) {
	d.t.Helper()
	path := filepath.Join(d.dir, "ballast")
	if bytes < 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.t.Fatal(err)
		}
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		d.t.Fatal(err)
	}
	// The server takes and gives room at the same time, so it is tried again in smaller steps.
	for size, step := info.Size(), int64(1)<<40; step >= 4096; {
		more := min(d.free()-bytes, step) &^ 4095
		if more <= 0 {
			return
		}
		err := syscall.Fallocate(int(f.Fd()), 0, size, more)
		switch {
		case err == nil:
			size += more
		case errors.Is(err, syscall.ENOSPC):
			step = more / 2
		case !errors.Is(err, syscall.EINTR):
			d.t.Fatal(err)
		}
	}
}

// A fullDisk is the lives of one server on a small disk.
type fullDisk struct {
	t     *testing.T
	disk  *smallFS
	rnd   *rand.Rand
	units [][]*unit
	dir   string
	left  int64          // of the disk, in this round
	met   map[string]int // lines of servers that found no room, by what they were about
}

// fullPlaces are what a server says where it finds no room.
var fullPlaces = map[string]string{
	"no free segment could be made": "a segment", "a checkpoint failed": "a checkpoint", "msg=ledger": "the ledger", "fenced": "what Pebble cannot do without",
}

// note counts where a server found no room.
func (f *fullDisk) note(n *node.Node) {
	for line := range strings.Lines(n.Stderr()) {
		for text, place := range fullPlaces {
			if strings.Contains(line, text) && strings.Contains(line, "no space left") {
				f.met[place]++
			}
		}
	}
}

func (f *fullDisk) args(i int) []string {
	args := []string{"--log-bytes", "8MiB", "--sync", killSyncs[i%len(killSyncs)]}
	if i%2 == 0 {
		args = append(args, "--memory-limit", "12MiB", "--expert-region-size", "2MiB", "--expert-index-region-size", "2MiB")
	}
	return args
}

// round is one life, or two, of which the disk is full in the middle.
func (f *fullDisk) round(i int, left int64) {
	t, what := f.t, fmt.Sprintf("round %d with %d bytes left, seed %d", i, left, *seedFlag)
	t.Helper()
	n := startNode(t, f.dir, f.args(i)...)
	c := dial(t, n)
	if err := verifyUnits(t.Context(), c, f.units); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	load := startLoad(t, c, f.units, f.rnd.Uint64(), false)
	load.underWay(t)
	time.Sleep(time.Duration(f.rnd.IntN(600)) * time.Millisecond)
	load.mayBeFull.Store(true)
	f.left = left
	f.disk.leave(left)
	lives := f.goesOn(what, "refusals of writes", n, load, load.noSpace.Load) && f.goesOn(what, "reads", n, load, load.reads.Load)
	if lives && left > 40<<20 {
		lives = f.goesOn(what, "deletes", n, load, load.deletes.Load)
	}
	time.Sleep(time.Duration(f.rnd.IntN(1000)) * time.Millisecond)
	if !lives || f.rnd.IntN(2) == 0 {
		f.end(n, c, load)
		n, c = f.startFull(what, i)
		load = startLoad(t, c, f.units, f.rnd.Uint64(), true)
	}
	f.disk.leave(-1)
	f.goesOn(what, "writes after there was room", n, load, load.puts.Load)
	f.end(n, c, load)
	t.Logf("%s: %d writes, %d deletes, %d refused, %d reads", what, load.writes.Load(), load.deletes.Load(), load.noSpace.Load(), load.reads.Load())
	if t.Failed() {
		t.FailNow()
	}
}

// end kills a server under load.
func (f *fullDisk) end(n *node.Node, c *client.Client, load *load) {
	f.t.Helper()
	if err := n.Kill(); err != nil {
		f.t.Fatal(err)
	}
	f.note(n)
	load.end(f.t)
	if err := c.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// startFull starts the server on the full disk, twice, because the first one may leave less. One
// that refuses to start, or ends, says why, and starts when there is room. Each has everything.
func (f *fullDisk) startFull(what string, i int) (*node.Node, *client.Client) {
	f.t.Helper()
	n, c, err := f.live(i)
	if err == nil {
		if err := errors.Join(c.Close(), n.Kill()); err != nil {
			f.t.Fatal(err)
		}
		n, c, err = f.live(i)
	}
	if err != nil && strings.Contains(err.Error(), "space") {
		f.t.Logf("%s: %v", what, err)
		f.disk.leave(-1)
		n, c, err = f.live(i)
	}
	if err != nil {
		f.t.Fatalf("%s, killed while it was full: %v", what, err)
	}
	return n, c
}

// live starts the server and reads everything. An error is that of the server, if it has ended.
func (f *fullDisk) live(i int) (*node.Node, *client.Client, error) {
	f.t.Helper()
	n, err := node.Start(f.t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(f.dir, f.args(i)...)})
	if err != nil {
		return nil, nil, err
	}
	f.t.Cleanup(func() {
		if err := n.Kill(); err != nil {
			f.t.Error(err)
		}
		if f.t.Failed() {
			f.t.Logf("the node's standard error:\n%s", n.Stderr())
		}
	})
	c := dial(f.t, n)
	err = verifyUnits(f.t.Context(), c, f.units)
	if err == nil {
		return n, c, nil
	}
	select {
	case <-n.Exited():
		if said, ok := f.mayEnd(n); !ok {
			f.t.Fatalf("the server has ended: %v\n%s", err, said)
		}
		f.note(n)
		return nil, nil, fmt.Errorf("%w: no space: the server has ended: %s", errors.Join(err, c.Close()), n.Stderr())
	case <-time.After(10 * time.Second):
		f.t.Fatalf("the server has not ended: %v", err)
		return nil, nil, err
	}
}

// mayEnd says whether a server that has ended was right to, as goesOn explains, and what it has
// said.
func (f *fullDisk) mayEnd(n *node.Node) (said string, ok bool) {
	said = n.Stderr()
	return said, f.left <= 10<<20 && strings.Contains(said, "fenced") && strings.Contains(said, "no space left")
}

// goesOn waits until a count has gone on by ten, which a server must reach by itself. It returns
// false if the server has ended because the base found no room for its MANIFEST, the ledger of
// that, or a file of large values: Pebble does not cope with it, so the store is fenced. The next start has
// everything. It happens only where the last room goes at once; puts are refused long before.
// It waits for so long because Pebble leaves keys alone for half a minute of which a compaction
// has failed.
func (f *fullDisk) goesOn(what, of string, n *node.Node, l *load, count func() uint64) bool {
	f.t.Helper()
	from := count()
	for start := time.Now(); count() < from+10; time.Sleep(5 * time.Millisecond) {
		select {
		case <-n.Exited():
			said, ok := f.mayEnd(n)
			if !ok {
				f.t.Fatalf("%s: the server has ended:\n%s", what, said)
			}
			return false
		default:
		}
		if err := l.failed(); err != nil {
			f.t.Fatalf("%s: %v", what, err) // its writers or readers have ended
		}
		if time.Since(start) > time.Minute {
			f.t.Fatalf("%s: for a minute there were %d %s; the server says:\n%s", what, count()-from, of, n.Stderr())
		}
	}
	return true
}

// upgradeFull starts a server on a stored data directory of format 2 while the disk is full: it
// serves everything, or says why not, and does so when there is room.
func upgradeFull(t *testing.T, d *smallFS) {
	for _, left := range []int64{0, 100 << 10, 2 << 20, 20 << 20} {
		dir := filepath.Join(d.dir, fmt.Sprint("u", left))
		unpackDir(t, filepath.Join("testdata", "stored", "killed.tar.gz"), dir)
		d.leave(left)
		n, err := node.Start(t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(dir, "--shards", "4", "--log-bytes", "8MiB")})
		switch {
		case err == nil:
			verifyStored(t, n, fmt.Sprintf("upgrade with %d bytes left", left))
			if err := n.Kill(); err != nil {
				t.Fatal(err)
			}
		case !strings.Contains(err.Error(), "space"):
			t.Fatalf("upgrade with %d bytes left: %v", left, err)
		default:
			t.Logf("%d bytes left: %v", left, err)
		}
		d.leave(-1)
		n = startNode(t, dir, "--shards", "4", "--log-bytes", "8MiB")
		verifyStored(t, n, fmt.Sprintf("upgrade with %d bytes left, and then with room", left))
		if err := errors.Join(n.Kill(), os.RemoveAll(dir)); err != nil {
			t.Fatal(err)
		}
	}
}
