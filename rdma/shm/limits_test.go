//go:build linux

package shm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"golang.org/x/sys/unix"
)

// limited sets a soft limit of this process until the test has called back.
func limited(t *testing.T, what int, to uint64) (back func()) {
	t.Helper()
	var old unix.Rlimit
	check(t, unix.Getrlimit(what, &old))
	check(t, unix.Setrlimit(what, &unix.Rlimit{Cur: to, Max: old.Max}))
	done := false
	back = func() {
		if !done {
			done = true
			if err := unix.Setrlimit(what, &old); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(back)
	return back
}

// noDescriptors is a limit of open files below all that are open.
const noDescriptors = 3

// TestNoMemoryToShare: where no memory can be shared the device says so when it is
// opened, so that a program may take another one.
func TestNoMemoryToShare(t *testing.T) {
	f := New(Options{})
	back := limited(t, unix.RLIMIT_NOFILE, noDescriptors)
	_, err := f.Open(t.Context(), "")
	back()
	if !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), "memfd") {
		t.Fatal(err)
	}
}

// lives returns what checks that a victim has gone on after the last message on the
// socket: one SEND may be taken by a connection that is about to end, a second one
// is not.
func (p *raw) lives(b *end) (alive func()) {
	p.t.Helper()
	m := b.mr(64, rdma.AccessLocalWrite)
	_, err := b.qp.PostRecv([]rdma.RecvWR{{ID: 2, SGL: []rdma.SGE{{MR: m, Len: 64}}}})
	check(p.t, err)
	return func() { p.sends(b, 2) }
}

func (p *raw) sends(b *end, n int) {
	p.t.Helper()
	for i := range n {
		check(p.t, b.cq.Arm())
		wordAt(p.ch.out.ring, 16*i).Store(word0(recSend, flagLast, 8))
		p.ch.out.tail.Store(uint64(16 * (i + 1)))
		raceRelease()
		_, _ = p.conn.Write(wakeByte)
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		err := b.cq.Wait(ctx)
		cancel()
		var wcs [2]rdma.WC
		n, _ := b.cq.Poll(wcs[:])
		if err != nil || n != 1 || wcs[0].Status != rdma.StatusSuccess {
			p.t.Fatalf("SEND %d: %v, %+v, %v", i, err, wcs[:n], b.qp.Err())
		}
	}
}

// TestNoRoomForDescriptors: a process that can take no more descriptors keeps its
// connection, and reads through the rings what it cannot map.
func TestNoRoomForDescriptors(t *testing.T) {
	p, b := attacked(t)
	fd, alive := p.sealed(), p.lives(b)
	back := limited(t, unix.RLIMIT_NOFILE, noDescriptors)
	p.shown(4096, fd)
	alive()
	back()
	if b.qp.(*qp).seen.has(2) {
		t.Error("it was mapped")
	}
}

// TestNoRoomToMap: likewise where the process has no more address space.
func TestNoRoomToMap(t *testing.T) {
	p, b := attacked(t)
	const size = 8 << 30
	fd, alive := p.memfd(size, honestSeals), p.lives(b)
	// This does what a dialer does that maps much, and holes too.
	seen := &b.qp.(*qp).seen
	seen.mu.Lock()
	seen.limits = mapLimits{maps: 8, bytes: 2 * size}
	seen.mu.Unlock()
	statm, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)
	check(t, err)
	back := limited(t, unix.RLIMIT_AS, pages*uint64(os.Getpagesize())+size/2)
	p.shown(size, fd)
	alive()
	back()
	if q := b.qp.(*qp); q.seen.has(2) || q.seen.maps != 0 || q.seen.bytes != 0 {
		t.Errorf("mapped: %v, counted %d with %d bytes", q.seen.has(2), q.seen.maps, q.seen.bytes)
	}
}

// TestHolesAreNotMapped: memory of which pages are missing is read through the rings:
// of a mapping the kernel would make them for us, and charge them to us.
func TestHolesAreNotMapped(t *testing.T) {
	const size = 1 << 20
	page := int64(os.Getpagesize())
	for name, c := range map[string]struct {
		fd     func(p *raw) int
		mapped bool
	}{
		"all of it is there":  {func(p *raw) int { return p.filled(size, size, honestSeals) }, true},
		"nothing is there":    {func(p *raw) int { return p.memfd(size, honestSeals) }, false},
		"the last page lacks": {func(p *raw) int { return p.filled(size, size-page, honestSeals) }, false},
		"pages behind the end": {func(p *raw) int { // as many blocks as its size has
			fd := p.memfd(size, 0)
			check(p.t, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, size, size))
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, honestSeals)
			check(p.t, err)
			return fd
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, b := attacked(t)
			alive := p.lives(b)
			p.shown(size, c.fd(p))
			alive()
			if q := b.qp.(*qp); q.seen.has(2) != c.mapped || q.seen.maps > 0 != c.mapped || q.pd.dev.fabric.accepted.n.Load() > 0 != c.mapped {
				t.Errorf("mapped: %v, counted %d with %d bytes", q.seen.has(2), q.seen.maps, q.seen.bytes)
			}
		})
	}
}

// TestAcceptedBytesAreBounded: what all peers show together is mapped up to a bound.
func TestAcceptedBytesAreBounded(t *testing.T) {
	p, b := attacked(t)
	q := b.qp.(*qp)
	sum := &q.pd.dev.fabric.accepted
	q.seen.mu.Lock()
	sum.limit = 4096
	q.seen.mu.Unlock()
	alive := p.lives(b)
	p.shown(8192, p.filled(8192, 8192, honestSeals))
	alive()
	if q.seen.has(2) || sum.n.Load() != 0 {
		t.Errorf("mapped beyond the bound: %d bytes", sum.n.Load())
	}
	p, b = attacked(t)
	q = b.qp.(*qp)
	sum = &q.pd.dev.fabric.accepted
	alive = p.lives(b)
	p.shown(4096, p.sealed())
	alive()
	if !q.seen.has(2) || sum.n.Load() != 4096 {
		t.Errorf("not mapped, or not counted: %d bytes", sum.n.Load())
	}
	b.qp.Close()
	if sum.n.Load() != 0 {
		t.Errorf("%d bytes are counted after the end", sum.n.Load())
	}
}

// TestTrustedDirectories: trusting the owner of a directory takes its name in the
// configuration. One of those that are looked into by themselves may have been made
// by any user.
func TestTrustedDirectories(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to make a directory of another user")
	}
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	dir := filepath.Join(base, "rdmakv")
	check(t, os.Mkdir(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "9.1.any.sock"), nil, 0o600))
	check(t, os.Chown(dir, 12345, 12345))
	own := New(Options{Trust: Trusted})
	if list, err := own.find(9); err == nil {
		t.Errorf("sockets of a stranger: %+v", list)
	}
	if got, err := own.makeDir(); err != nil || got == dir {
		t.Errorf("listens in %q, %v", got, err)
	}
	named := New(Options{Trust: Trusted, Dir: dir})
	if list, err := named.find(9); err != nil || len(list) != 1 {
		t.Errorf("the directory that was named: %+v, %v", list, err)
	}
}

// TestEndIsNoFault: a region that is taken back because the owner ends the
// connection is not one that we may not read.
func TestEndIsNoFault(t *testing.T) {
	for _, direct := range []bool{true, false} {
		a, b := connected(t, Options{}, Options{})
		m := b.mr(4096, rdma.AccessRemoteRead)
		check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
		a.mapped(m)
		b.qp.(*qp).ch.out.bye.Store(uint64(byeClosed))
		check(t, b.qp.SetAccess(0))
		if direct {
			if s := a.qp.(rdma.DirectReader).ReadDirect(make([]byte, 64), remoteOf(m)); s != rdma.StatusRetryExcErr {
				t.Errorf("%v", s)
			}
		} else {
			sink := a.mr(64, rdma.AccessLocalWrite)
			_, err := a.qp.PostSend([]rdma.SendWR{{Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: sink, Len: 64}}, Remote: remoteOf(m)}})
			check(t, err)
		}
		a.dead(rdma.ErrPeerGone)
	}
}

// TestForbiddenStaysForbidden: a READ that may not be when it comes ends the
// connection, also if it might be once the READs before it are answered.
func TestForbiddenStaysForbidden(t *testing.T) {
	p, b := attacked(t)
	list := p.regions()
	var words []uint64
	for range 100 {
		words = append(words, word0(recRead, flagLast, 0), uint64(list[0].key)|4096<<32, 0)
	}
	next := soft.ProcessKeys().Peek()
	words = append(words, word0(recRead, flagLast, 0), uint64(next)|8<<32, 0)
	p.say(uint64(8*len(words)), words...)
	q := b.qp.(*qp)
	eventually(t, "the READ was seen", func() bool {
		q.rx.mu.Lock()
		defer q.rx.mu.Unlock()
		return q.rx.stopped
	})
	if m := b.mr(4096, rdma.AccessRemoteRead); m.RKey() != next {
		t.Fatalf("the next rkey is %#x, not %#x", m.RKey(), next)
	}
	eventually(t, "the QP is dead", func() bool {
		p.ch.in.head.Store(p.ch.in.tail.Load())
		_, _ = p.conn.Write(wakeByte)
		time.Sleep(time.Millisecond)
		return b.qp.Err() != nil
	})
	b.dead(rdma.ErrAccess)
}
