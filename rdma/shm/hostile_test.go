//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A raw is a dialer by hand: a hostile peer, once it has said hello.
type raw struct {
	t    *testing.T
	conn *net.UnixConn
	ch   *channel
}

// attacked makes an end that has accepted a raw peer, with a receive posted.
func attacked(t *testing.T) (*raw, *end) {
	t.Helper()
	b := newEnd(t, New(Options{}), rdma.QPConfig{Access: rdma.AccessRemoteRead})
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	mr := b.mr(4096, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	_, err = b.qp.PostRecv([]rdma.RecvWR{{ID: 1, SGL: []rdma.SGE{{MR: mr, Len: 4096}}}})
	check(t, err)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.(*listener).file.path, Net: "unixpacket"})
	check(t, err)
	want := l.(*listener).self
	h := hello{netns: netns(), addr: want, ird: 4, ord: 4}
	_, err = conn.Write(h.append(nil))
	check(t, err)
	r, err := l.Accept(t.Context())
	check(t, err)
	_, err = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
	check(t, err)
	buf, oob := make([]byte, maxMessage), make([]byte, 256)
	n, fds, err := readMessage(conn, buf, oob)
	check(t, err)
	if w, err := parseWelcome(buf[:n]); err != nil || !w.accept || len(fds) != 1 {
		t.Fatalf("%+v, %v, %d descriptors", w, err, len(fds))
	}
	pages, err := memfd.MapChannel(fds[0], channelSize)
	check(t, err)
	closeAll(fds)
	p := &raw{t: t, conn: conn, ch: newChannel(pages, true)}
	t.Cleanup(func() {
		_ = conn.Close()
		b.close()
		check(t, p.ch.unmap())
		check(t, l.Close())
	})
	return p, b
}

// say writes words into the ring from its start and wakes the victim.
func (p *raw) say(tail uint64, words ...uint64) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(p.ch.out.ring[8*i:], w)
	}
	p.ch.out.tail.Store(tail)
	raceRelease()
	_, _ = p.conn.Write(wakeByte)
}

func (p *raw) send(b []byte, fds ...int) {
	_, _, err := p.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	check(p.t, err)
}

// TestHostileRings: nonsense in a ring ends the connection, as what it is, and
// nothing else.
func TestHostileRings(t *testing.T) {
	rec := func(typ recType, flags uint8, n uint64) uint64 { return word0(typ, flags, n) }
	for name, c := range map[string]struct {
		say  func(p *raw)
		want error
	}{
		"tail far ahead":            {func(p *raw) { p.say(1 << 40) }, rdma.ErrProtocol},
		"tail a byte off":           {func(p *raw) { p.say(13, rec(recSend, flagLast, 5)) }, rdma.ErrProtocol},
		"tail before the start":     {func(p *raw) { p.say(^uint64(7)) }, rdma.ErrProtocol},
		"no record":                 {func(p *raw) { p.say(8, 0) }, rdma.ErrProtocol},
		"unknown type":              {func(p *raw) { p.say(8, rec(recTypes, 0, 0)) }, rdma.ErrProtocol},
		"unknown flags":             {func(p *raw) { p.say(8, rec(recSend, 0x80, 0)) }, rdma.ErrProtocol},
		"bits that are 0":           {func(p *raw) { p.say(8, rec(recSend, flagLast, 0)|1<<60) }, rdma.ErrProtocol},
		"longer than the ring":      {func(p *raw) { p.say(16, rec(recSend, flagLast, 1<<31)) }, rdma.ErrProtocol},
		"longer than what is there": {func(p *raw) { p.say(16, rec(recSend, flagLast, 100)) }, rdma.ErrProtocol},
		"longer than a piece":       {func(p *raw) { p.say(ringSize, rec(recSend, 0, maxPiece+8)) }, rdma.ErrProtocol},
		"a pad in the middle":       {func(p *raw) { p.say(64, rec(recPad, 0, 8)) }, rdma.ErrProtocol},
		"an empty piece":            {func(p *raw) { p.say(8, rec(recSend, 0, 0)) }, rdma.ErrProtocol},
		"a SEND beyond the receive": {func(p *raw) { p.say(4112, rec(recSend, flagLast, 4104)) }, rdma.ErrProtocol},
		"a second SEND":             {func(p *raw) { p.say(16, rec(recSend, flagLast, 0), rec(recSend, flagLast, 0)) }, rdma.ErrReceiverNotReady},
		"a response to nothing":     {func(p *raw) { p.say(8, rec(recResp, flagLast, 0)) }, rdma.ErrProtocol},
		"a READ of nobody's":        {func(p *raw) { p.say(24, rec(recRead, flagLast, 0), 77|8<<32, 0) }, rdma.ErrAccess},
		"a READ with payload":       {func(p *raw) { p.say(32, rec(recRead, flagLast, 8), 77|8<<32, 0, 0) }, rdma.ErrProtocol},
		"a READ of 4 GiB":           {func(p *raw) { p.say(24, rec(recRead, flagLast, 0), 77|0xffffffff<<32, 0) }, rdma.ErrProtocol},
		"a WRITE without the right": {func(p *raw) { p.say(32, rec(recWrite, flagLast, 8), 77, 0, 0) }, rdma.ErrAccess},
		"READs without end":         {func(p *raw) { p.flood(1000) }, rdma.ErrProtocol},
		"our head beyond our tail":  {func(p *raw) { p.ch.in.head.Store(1 << 40); p.answered() }, rdma.ErrProtocol},
		"our head a byte off":       {func(p *raw) { p.ch.in.head.Store(3); p.answered() }, rdma.ErrProtocol},
		"a last word of its own":    {func(p *raw) { p.ch.out.bye.Store(1 << 50); _ = p.conn.Close() }, rdma.ErrPeerGone},
		"a message that is none":    {func(p *raw) { p.send([]byte("x")) }, rdma.ErrProtocol},
		"a second hello":            {func(p *raw) { p.send((&hello{}).append(nil)) }, rdma.ErrProtocol},
		"a region without memory": {func(p *raw) {
			p.send(append([]byte{msgRegions}, appendShown(nil, 1, 2, memfd.Backing{Size: 4096}, 4096)...))
		}, rdma.ErrProtocol},
		"memory without a region":    {func(p *raw) { p.send([]byte{msgRegions}, p.memfd(4096, 0)) }, rdma.ErrProtocol},
		"more memory than regions":   {func(p *raw) { p.shown(4096, p.memfd(4096, unix.F_SEAL_SHRINK), p.memfd(4096, 0)) }, rdma.ErrProtocol},
		"memory without a seal":      {func(p *raw) { p.shown(4096, p.memfd(4096, 0)) }, rdma.ErrProtocol},
		"memory that is too short":   {func(p *raw) { p.shown(8192, p.sealed()) }, rdma.ErrProtocol},
		"memory that is too long":    {func(p *raw) { p.shown(2048, p.sealed()) }, rdma.ErrProtocol},
		"memory that can get holes":  {func(p *raw) { p.shown(4096, p.memfd(4096, unix.F_SEAL_SHRINK)) }, rdma.ErrProtocol},
		"a file":                     {func(p *raw) { p.shown(4096, p.file(4096)) }, rdma.ErrProtocol},
		"a pipe":                     {func(p *raw) { p.shown(4096, p.pipe()) }, rdma.ErrProtocol},
		"more descriptors than fit":  {func(p *raw) { p.shown(4096, p.many(200)...) }, rdma.ErrPeerGone},
		"the same rkey again":        {func(p *raw) { p.shown(4096, p.sealed()); p.shown(4096, p.sealed()) }, rdma.ErrProtocol},
		"a message of half a notice": {func(p *raw) { p.send([]byte{msgRegions, '-', 1}) }, rdma.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			p, b := attacked(t)
			c.say(p)
			b.dead(c.want)
		})
	}
	if n := openMemfds(t); n > 0 {
		t.Errorf("%d descriptors of peers are open still", n)
	}
}

// TestRecordBeyondTheFilled: a record claims to be longer than the bytes that the
// peer has filled, and would end within the ring. The bytes there are of former
// records, and no message.
func TestRecordBeyondTheFilled(t *testing.T) {
	p, b := attacked(t)
	p.say(16, word0(recSend, flagLast, 100))
	if wc := b.completion(); wc.Status != rdma.StatusWRFlushErr {
		t.Errorf("a receive completed with %v and %d bytes of a SEND of which 8 were there", wc.Status, wc.ByteLen)
	}
	b.dead(rdma.ErrProtocol)
}

// flood asks for n READs of a region that is there, and takes no answer.
func (p *raw) flood(n int) {
	list := p.regions()
	var words []uint64
	for range n {
		words = append(words, word0(recRead, flagLast, 0), uint64(list[0].key)|4096<<32, 0)
	}
	p.say(uint64(8*len(words)), words...)
}

// regions are what the victim has shown.
func (p *raw) regions() []shown {
	_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf, oob := make([]byte, maxMessage), make([]byte, 256)
	size, fds, err := readMessage(p.conn, buf, oob)
	check(p.t, err)
	list, err := parseRegions(buf[1:size], len(fds))
	check(p.t, err)
	closeAll(fds)
	return list
}

// answered makes the victim look at our place in its ring: it has to answer more
// than the ring holds, and may: it serves 128 at a time.
func (p *raw) answered() { p.flood(100) }

func (p *raw) memfd(size int64, seals int) int { return p.filled(size, 0, seals) }

// filled is a memfd whose first bytes are there, and nothing but holes behind them.
func (p *raw) filled(size, fill int64, seals int) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	check(p.t, err)
	p.t.Cleanup(func() { _ = unix.Close(fd) })
	check(p.t, unix.Ftruncate(fd, size))
	if fill > 0 {
		n, err := unix.Pwrite(fd, make([]byte, fill), 0)
		check(p.t, err)
		if int64(n) != fill {
			p.t.Fatalf("%d bytes written, not %d", n, fill)
		}
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	check(p.t, err)
	return fd
}

// sealed is memory as an honest peer shows it.
func (p *raw) sealed() int { return p.filled(4096, 4096, honestSeals) }

const honestSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_FUTURE_WRITE

func (p *raw) file(size int) int {
	name := filepath.Join(p.t.TempDir(), "file")
	check(p.t, os.WriteFile(name, make([]byte, size), 0o600))
	f, err := os.Open(name)
	check(p.t, err)
	p.t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func (p *raw) pipe() int {
	var fds [2]int
	check(p.t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	p.t.Cleanup(func() { closeAll(fds[:]) })
	return fds[0]
}

func (p *raw) many(n int) (fds []int) {
	fd := p.sealed()
	for range n {
		fds = append(fds, fd)
	}
	return fds
}

// shown tells of one region, with descriptors.
func (p *raw) shown(size int64, fds ...int) {
	p.send(append([]byte{msgRegions}, appendShown(nil, 1, 2, memfd.Backing{Size: size}, uint64(size))...), fds...)
}

// openMemfds counts descriptors that came from the raw peers.
func openMemfds(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	for _, e := range list {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && name == "/memfd:hostile (deleted)" {
			n++
		}
	}
	return n
}

// TestHostileMemory: what a peer shows is mapped only if it cannot be cut off.
// The kernel refuses every way around the seals that this end sets.
func TestHostileMemory(t *testing.T) {
	b, err := mem.Alloc(1<<16, mem.Options{Shared: true, Tag: "shm test"})
	check(t, err)
	defer b.Free()
	at, ok := memfd.BackingOf(b.Bytes()[4096:8192])
	if !ok || at.Offset != 4096 || at.Size != 1<<16 {
		t.Fatalf("%+v, %v", at, ok)
	}
	b.Bytes()[4096] = 7
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at.FD), unix.O_RDWR|unix.O_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(again)
	for _, fd := range []int{at.FD, again} {
		if m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("mapped for writing")
			_ = unix.Munmap(m)
		}
		m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		check(t, err)
		if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Error("made writable")
		}
		check(t, unix.Munmap(m))
		for what, err := range map[string]error{
			"shrunk":  unix.Ftruncate(fd, 4096),
			"grown":   unix.Ftruncate(fd, 1<<20),
			"punched": unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192),
		} {
			if err == nil {
				t.Errorf("the memory was %s", what)
			}
		}
		if _, err := unix.Pwrite(fd, []byte("x"), 4096); err == nil {
			t.Error("written")
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Error("sealed once more")
		}
	}
	if b.Bytes()[4096] != 7 {
		t.Error("the memory has changed")
	}
}

// TestPeerThatNeverReads: a peer that takes nothing out of ring and socket delays
// no other: regions come and go, work stays queued, and the end is clean.
func TestPeerThatNeverReads(t *testing.T) {
	_, b := attacked(t)
	src := b.mr(1<<20, rdma.AccessLocalWrite)
	var wrs []rdma.SendWR
	for i := range 16 {
		wrs = append(wrs, rdma.SendWR{ID: uint64(i), Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: src, Len: 1 << 20}}})
	}
	_, err := b.qp.PostSend(wrs)
	check(t, err)
	for range 2000 { // far more than the socket holds
		m, err := b.pd.RegMR(src.Bytes()[:8], rdma.AccessRemoteRead)
		check(t, err)
		check(t, m.Close())
	}
	check(t, b.qp.Disconnect())
	b.dead(rdma.ErrClosed)
	check(t, b.qp.Close())
	for n := 0; n < len(wrs)+1; {
		var wcs [32]rdma.WC
		k, err := b.cq.Poll(wcs[:])
		check(t, err)
		for _, wc := range wcs[:k] {
			if wc.Status == rdma.StatusSuccess {
				t.Errorf("%+v", wc)
			}
		}
		n += k
	}
}

// TestForbiddenBehindUnread: a READ that is not allowed, behind others whose
// answers the peer does not take, waits for them; no goroutine spins meanwhile.
func TestForbiddenBehindUnread(t *testing.T) {
	p, b := attacked(t)
	list := p.regions()
	var words []uint64
	for range 100 {
		words = append(words, word0(recRead, flagLast, 0), uint64(list[0].key)|4096<<32, 0)
	}
	words = append(words, word0(recRead, flagLast, 0), uint64(list[0].key^1)|4096<<32, 0, word0(recSend, flagLast, 0))
	p.say(uint64(8*len(words)), words...)
	q := b.qp.(*qp)
	eventually(t, "the READ was seen and the ring let go of", func() bool {
		if !q.rx.mu.TryLock() {
			return false
		}
		defer q.rx.mu.Unlock()
		return q.rx.stopped
	})
	var wcs [1]rdma.WC
	if n, err := b.cq.(rdma.Spinner).Spin(wcs[:], time.Millisecond); n != 0 || err != nil {
		t.Errorf("what stands behind a forbidden READ was acted upon: %d, %v", n, err)
	}
	if err := b.qp.Err(); err != nil {
		t.Errorf("the READs before have not had their answers: %v", err)
	}
}

// TestPeerHangsUp: the socket's end is the connection's, and it tells the class.
func TestPeerHangsUp(t *testing.T) {
	p, b := attacked(t)
	check(t, p.conn.Close())
	b.dead(rdma.ErrPeerGone)
}

// TestStrangers: which users' processes may be at the other end.
func TestStrangers(t *testing.T) {
	const me, owner, nobody = 1000, 2000, ^uint32(0)
	for _, c := range []struct {
		trust      Trust
		peer, self uint32
		dialing    bool
		owner      uint32
		ok         bool
	}{
		{SameUser, me, me, false, nobody, true},
		{SameUser, 1001, me, false, nobody, false},
		{SameUser, 0, me, true, 0, false},
		{SameUser, overflowUID, overflowUID, false, nobody, false},
		{Trusted, 1001, me, false, nobody, true},
		{Trusted, 1001, me, true, owner, false},
		{Trusted, owner, me, true, owner, true},
		{Trusted, 0, me, true, owner, true},
	} {
		if err := c.trust.judge(c.peer, c.self, c.dialing, c.owner); (err == nil) != c.ok || err != nil && !errors.Is(err, errUntrusted) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSocketFiles: a socket belongs to one process at a time; what a dead one left
// is replaced, what is no socket is left alone, and a directory in which others
// could put sockets is not used.
func TestSocketFiles(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "1.2.any.sock")
	first, sock, err := listenSocket(path, 0o600)
	check(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, _, err := listenSocket(path, 0o600); !errors.Is(err, errNameTaken) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket that is served: %v", err)
	}
	// As a crash leaves it: no lock, the file is there.
	check(t, first.lock.Close())
	check(t, sock.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("the crash took the socket with it")
	}
	second, sock, err := listenSocket(path, 0o600)
	check(t, err)
	check(t, sock.Close())
	second.release()
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	check(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, _, err := listenSocket(path, 0o600); err == nil {
		t.Error("a file was replaced by a socket")
	}

	f := New(Options{Dir: dir})
	check(t, os.Chmod(dir, 0o770))
	if _, err := f.makeDir(); err == nil {
		t.Error("a directory that others may write to")
	}
	check(t, os.Chmod(dir, 0o700))
	link := filepath.Join(t.TempDir(), "link")
	check(t, os.Symlink(dir, link))
	if _, err := New(Options{Dir: link}).makeDir(); err == nil {
		t.Error("a directory behind a symbolic link")
	}
	long := New(Options{Dir: filepath.Join(dir, string(make([]byte, 0)), fmt.Sprintf("%0100d", 1))})
	d, err := long.Open(t.Context(), "")
	check(t, err)
	if _, err := d.Listen(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("a path that no socket can have")
	}
	check(t, d.Close())
}
