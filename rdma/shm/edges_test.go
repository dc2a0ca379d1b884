//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"golang.org/x/sys/unix"
)

// TestRegionClosedWhileTheConnectionEnds: MR.Close returns once no peer may read
// the region, also of a connection that is just being taken apart.
func TestRegionClosedWhileTheConnectionEnds(t *testing.T) {
	a, b := connected(t, Options{}, Options{})
	m := b.mr(4096, rdma.AccessRemoteRead)
	check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
	a.mapped(m)
	q := b.qp.(*qp)
	q.show.mu.Lock() // the end comes this far and waits
	word := &q.show.half.slots[q.show.slotOf[m.(*soft.MR)]]
	check(t, b.qp.Disconnect())
	eventually(t, "the connection is being taken apart", func() bool {
		if !q.pd.exports.mu.TryLock() {
			return true
		}
		defer q.pd.exports.mu.Unlock()
		return len(q.pd.exports.peers) == 0
	})
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	select {
	case err := <-closed:
		if word.Load() != 0 {
			t.Errorf("the region is closed (%v), and the peer may read it", err)
		}
		q.show.mu.Unlock()
	case <-time.After(50 * time.Millisecond):
		q.show.mu.Unlock()
		check(t, <-closed)
	}
}

// TestProofOutlivesTheMapping: a process that waits for the lock that a peer holds
// must learn that no peer has the memory any more. So the peer releases it when it
// has unmapped all, and not while a goroutine here is still in the middle of a copy.
func TestProofOutlivesTheMapping(t *testing.T) {
	name := filepath.Join(t.TempDir(), "readers.lock")
	lock := func(how int) (*os.File, error) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		check(t, err)
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
			check(t, f.Close())
			return nil, err
		}
		return f, nil
	}
	a, b := connected(t, Options{}, Options{Proof: func() (*os.File, error) { return lock(unix.LOCK_SH) }})
	m := b.mr(4096, rdma.AccessRemoteRead)
	check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
	a.mapped(m)
	s := &a.qp.(*qp).seen
	copying := s.take(m.RKey())
	check(t, a.qp.Disconnect())
	eventually(t, "the regions are being unmapped", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed
	})
	if f, err := lock(unix.LOCK_EX); err == nil {
		check(t, f.Close())
		t.Error("the lock is free while a region is mapped and read")
	}
	copying.release()
	eventually(t, "the lock is free", func() bool {
		f, err := lock(unix.LOCK_EX)
		if err == nil {
			check(t, f.Close())
		}
		return err == nil
	})
}

// TestNothingStaysMapped: of a message that is refused in its middle nothing stays
// mapped, and nothing counted.
func TestNothingStaysMapped(t *testing.T) {
	p, b := attacked(t)
	msg := []byte{msgRegions}
	for _, key := range []uint32{5, 6, 7, 5} {
		msg = appendShown(msg, uint16(key), key, memfd.Backing{Size: 4096}, 4096)
	}
	p.send(msg, p.sealed(), p.sealed(), p.sealed(), p.sealed())
	b.dead(rdma.ErrProtocol)
	check(t, b.qp.Close())
	maps, err := os.ReadFile("/proc/self/maps")
	check(t, err)
	if n := bytes.Count(maps, []byte("/memfd:hostile")); n > 0 {
		t.Errorf("%d mappings of a peer's memory are left", n)
	}
	if n := b.dev.(*device).fabric.maps.N(); n != 0 {
		t.Errorf("%d mappings are counted", n)
	}
}

// TestPadsWithoutEnd: a peer that lets its ring seem full of pads for ever keeps no
// goroutine busy with it.
func TestPadsWithoutEnd(t *testing.T) {
	p, b := attacked(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		p.say(ringSize, word0(recPad, 0, ringSize-recordHeader))
		for {
			select {
			case <-stop:
				return
			default:
				p.ch.out.tail.Store(p.ch.out.head.Load() + ringSize)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	b.dead(rdma.ErrProtocol)
}

// TestEveryMessageWakes: a wake-up for which the socket had no room is made good by
// the messages that filled it.
func TestEveryMessageWakes(t *testing.T) {
	p, b := attacked(t)
	check(t, b.cq.Arm())
	eventually(t, "the receiver sleeps", func() bool { return p.ch.out.asleep.Load() == 1 })
	p.ch.out.asleep.Store(0) // as a producer that sends a wake-up and finds no room
	copy(p.ch.out.ring, []byte{16: 'x'})
	wordAt(p.ch.out.ring, 0).Store(word0(recSend, flagLast, 8))
	p.ch.out.tail.Store(16)
	p.send([]byte{msgRegions})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.cq.Wait(ctx); err != nil {
		t.Errorf("a SEND in the ring was not noticed: %v", err)
	}
}

// hail dials a listener by hand and says hello.
func hail(t *testing.T, l rdma.Listener) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: l.(*listener).file.path, Net: "unixpacket"})
	check(t, err)
	h := hello{netns: netns(), addr: l.(*listener).self, ird: 4, ord: 4}
	_, err = conn.Write(h.append(nil))
	check(t, err)
	return conn
}

// TestListenerNobodyAccepts: requests that wait too long are dropped, however many
// they are, and Close does not wait for them.
func TestListenerNobodyAccepts(t *testing.T) {
	e := newEnd(t, New(Options{MaxPending: 3, SetupTimeout: 20 * time.Millisecond}), rdma.QPConfig{})
	defer e.close()
	l, err := e.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	for range 7 {
		conn := hail(t, l)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a request that nobody takes: %v", err)
		}
		check(t, conn.Close())
	}
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		check(t, err)
	case <-time.After(10 * time.Second):
		t.Error("Close waits for requests that nobody takes")
		l.(*listener).queue.Rest()
		check(t, <-closed)
	}
}

// TestSweptWhileListening: another process that sweeps the directory holds the lock
// of what a dead one left behind for a moment; the name is not taken for that.
func TestSweptWhileListening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.2.any.sock")
	for try := 1; ; try++ {
		sweeper, err := lockName(path)
		check(t, err)
		released := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() {
			sweeper.release()
			close(released)
		})
		name, sock, err := listenSocket(path, 0o600)
		<-released
		if errors.Is(err, errNameTaken) && try < 5 {
			continue // on a machine that stalls the moment may have been longer than lockPatience
		}
		check(t, err)
		check(t, sock.Close())
		name.release()
		return
	}
}

// TestRegionsOfAnotherFabric: a program that uses two fabrics and takes the region of
// one for the other is told so at the post. A region of another device of the same
// fabric is taken, and fails when it is used, as in hardware.
func TestRegionsOfAnotherFabric(t *testing.T) {
	type side struct {
		dev rdma.Device
		mr  rdma.MR
		qp  rdma.QP
		srq rdma.SRQ
	}
	open := func(f rdma.Fabric) (s side) {
		dev, err := f.Open(t.Context(), "")
		check(t, err)
		pd, err := dev.AllocPD()
		check(t, err)
		cq, err := dev.CreateCQ(16)
		check(t, err)
		s.dev = dev
		s.qp, err = pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
		check(t, err)
		s.srq, err = pd.CreateSRQ(16)
		check(t, err)
		s.mr, err = pd.RegMR(make([]byte, 64), rdma.AccessLocalWrite)
		check(t, err)
		t.Cleanup(func() {
			for _, close := range []func() error{s.qp.Close, s.srq.Close, s.mr.Close, cq.Close, pd.Close, dev.Close} {
				check(t, close())
			}
		})
		return s
	}
	shared := New(Options{Dir: t.TempDir()})
	local, other, foreign := open(shared), open(shared), open(iwarp.New(iwarp.Options{}))
	for _, c := range []struct {
		name string
		at   side
		mr   rdma.MR
		ok   bool
	}{
		{"shm, of iwarp", local, foreign.mr, false},
		{"iwarp, of shm", foreign, local.mr, false},
		{"another device of shm", local, other.mr, true},
		{"its own", local, local.mr, true},
	} {
		wrs := []rdma.RecvWR{{SGL: []rdma.SGE{{MR: c.mr, Len: 8}}}}
		for what, post := range map[string]func([]rdma.RecvWR) (int, error){"QP": c.at.qp.PostRecv, "SRQ": c.at.srq.PostRecv} {
			n, err := post(wrs)
			if (n == 1 && err == nil) != c.ok || !c.ok && !errors.Is(err, rdma.ErrInvalid) {
				t.Errorf("%s, %s: %d, %v", c.name, what, n, err)
			}
		}
	}
	a, _ := connected(t, Options{}, Options{})
	if n, err := a.qp.PostSend([]rdma.SendWR{{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: foreign.mr, Len: 8}}}}); n != 0 || !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("a SEND from a region of iwarp: %d, %v", n, err)
	}
}
