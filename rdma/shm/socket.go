//go:build linux

package shm

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
)

// The socket of a connection carries, after the set-up, wake-ups and descriptors,
// and hangs up when a process dies. An eventfd would be a little cheaper to wake
// with, but it is one open file for both ends: a hostile peer can clear its
// O_NONBLOCK and fill it, and our next wake-up would block in the kernel. Two ends
// of a socket have nothing in common but what is sent.

// wakeByte is a wake-up; sending it copies it, so that all may share it.
var wakeByte = []byte{msgWake}

// wakePeer wakes the peer if it sleeps.
func (t *sender) wakePeer() {
	if t.h.asleep.Load() != 0 && t.h.asleep.Swap(0) != 0 {
		t.q.wake()
	}
}

// wake sends a wake-up. It does not wait: if the socket is full, there are enough
// messages in it, each of which wakes (listen). If a wake-up cannot be sent for
// another reason the connection ends, because else the peer would sleep for ever.
func (q *qp) wake() {
	_ = q.raw.Control(func(fd uintptr) {
		err := unix.Sendto(int(fd), wakeByte, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
		if err != nil && err != unix.EAGAIN {
			_ = unix.Shutdown(int(fd), unix.SHUT_RDWR)
		}
	})
}

// sendMessage sends a datagram with descriptors. It waits for room, until the
// connection is closed.
func (q *qp) sendMessage(b []byte, fds []int) error {
	_, _, err := q.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	return err
}

// listen reads the socket until the peer closes it.
func (q *qp) listen() {
	buf := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*maxNotices))
	for {
		n, fds, short, err := readDatagram(q.conn, buf, oob)
		if err == nil && n > 0 && buf[0] != msgWake {
			err = q.onMessage(buf[:n], fds, short)
			if err != nil {
				q.rx.hangup(fmt.Errorf("%w: %w", rdma.ErrProtocol, err))
				return
			}
			fds = nil
		}
		closeAll(fds)
		if err != nil || n == 0 {
			q.rx.hangup(nil)
			return
		}
		q.rx.serve() // with any message: a wake-up may have found no room behind it
	}
}

// readMessage reads one datagram and its descriptors, which are the caller's to
// close. A datagram of 0 bytes is the end, io.EOF.
func readMessage(conn *net.UnixConn, buf, oob []byte) (n int, fds []int, err error) {
	n, fds, short, err := readDatagram(conn, buf, oob)
	if short && err == nil {
		closeAll(fds)
		return 0, nil, errCut
	}
	return n, fds, err
}

var errCut = fmt.Errorf("%w: a message or its descriptors were cut off", rdma.ErrProtocol)

// readDatagram is readMessage that also takes a message of which some descriptors,
// the last ones, are missing, because this process has no room for more.
func readDatagram(conn *net.UnixConn, buf, oob []byte) (n int, fds []int, short bool, err error) {
	n, oobn, flags, _, err := conn.ReadMsgUnix(buf, oob)
	if oobn > 0 {
		fds = descriptors(oob[:oobn])
	}
	short = flags&unix.MSG_CTRUNC != 0
	if err == nil && (flags&unix.MSG_TRUNC != 0 || short && len(fds) >= maxNotices) {
		err = errCut // no peer that keeps to the protocol sends more
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		closeAll(fds)
		return 0, nil, false, err
	}
	return n, fds, short, nil
}

// descriptors takes what the kernel has put into our table.
func descriptors(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if got, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// onMessage acts on a datagram of the peer. short says that descriptors are missing:
// those regions are read through the rings. It closes the descriptors.
func (q *qp) onMessage(b []byte, fds []int, short bool) error {
	defer func() { closeAll(fds) }()
	if b[0] != msgRegions {
		return fmt.Errorf("message %q", b[0])
	}
	list, named, err := parseNotices(b[1:])
	switch {
	case err != nil:
		return err
	case named < len(fds), named > len(fds) && !short:
		return badNotice()
	}
	add := make(map[uint32]*remote)
	defer func() { // those that readers have not learned of
		for _, r := range add {
			q.seen.forget(r)
		}
	}()
	for _, s := range list {
		if s.gone {
			if r := add[s.key]; r != nil {
				delete(add, s.key)
				q.seen.forget(r)
				continue
			}
			q.seen.drop(s.key)
			continue
		}
		if len(fds) == 0 {
			continue
		}
		r, err := q.mapRegion(s, fds[0])
		fds = shift(fds)
		if err != nil {
			return err
		}
		if r != nil {
			if add[s.key] != nil || q.seen.has(s.key) {
				q.seen.forget(r)
				return fmt.Errorf("rkey %#x shown twice", s.key)
			}
			add[s.key] = r
		}
	}
	q.seen.add(add)
	add = nil
	return nil
}

// shift closes the first descriptor and returns the others.
func shift(fds []int) []int {
	_ = unix.Close(fds[0])
	return fds[1:]
}

// mapRegion maps a region that the peer shows. It returns nil without an error if
// the region is beyond our bounds, or beyond the machine's for us, or has holes:
// then it will be read through the rings.
func (q *qp) mapRegion(s shown, fd int) (*remote, error) {
	if !q.seen.fits(int64(s.size)) {
		return nil, nil
	}
	raw, err := memfd.MapSealed(fd, int64(s.size))
	if err != nil {
		q.seen.unfit(int64(s.size))
		if !errors.Is(err, memfd.ErrUnsealed) && !errors.Is(err, memfd.ErrSize) {
			err = nil // no fault of the peer's
		}
		return nil, err
	}
	if q.seen.limits.backed && !memfd.Backed(fd, int64(s.size)) {
		_ = memfd.UnmapSealed(raw)
		q.seen.unfit(int64(s.size))
		return nil, nil
	}
	r := &remote{
		slot: &q.ch.in.slots[s.slot], want: slotValid | uint64(s.key),
		data: raw[s.off : s.off+s.n], raw: raw, idle: make(chan struct{}),
	}
	return r, nil
}
