package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// protocol is the version of the messages.
	protocol = 1

	// maxName bounds the name of what is kept, maxKept how many there are (a table of regions has at most 65536, and the record is one
	// more), and maxMessage a message.
	maxName    = 64
	maxKept    = 1<<16 + 1
	maxMessage = 128

	// maxDescriptors is how many descriptors a message is looked through for. More are closed by the kernel.
	maxDescriptors = 4

	msgHello  = 'H'
	msgRegion = 'F'
	msgBusy   = 'B'
	msgPut    = 'P'
	msgDrop   = 'D'
	msgDone   = 'K'
)

// ErrProtocol: the other end says what it must not.
var ErrProtocol = errors.New("keeper: not a message of this protocol")

// MaxKeep bounds how long memory is kept for a node that does not come.
const MaxKeep = 24 * time.Hour

// A message is one datagram without its descriptor.
type message struct {
	kind byte
	name string        // of msgRegion, msgPut, msgDrop
	keep time.Duration // of msgHello
	pid  int           // of msgBusy: the process that has the memory
}

// bytes is what is sent.
func (m message) bytes() []byte {
	b := []byte{m.kind}
	switch m.kind {
	case msgHello:
		b = binary.LittleEndian.AppendUint64(append(b, protocol), uint64(max(m.keep, 0)))
	case msgBusy:
		b = strconv.AppendInt(b, int64(m.pid), 10)
	case msgRegion, msgPut, msgDrop:
		b = append(b, m.name...)
	}
	return b
}

// parse takes a datagram apart. with says whether a descriptor came with it: it must where the kind has one, and must not elsewhere. The bytes are
// the other end's, and nothing in them is believed before it is checked.
func parse(b []byte, with bool) (message, error) {
	if len(b) == 0 || len(b) > maxMessage {
		return message{}, ErrProtocol
	}
	m, body := message{kind: b[0]}, b[1:]
	if with != (m.kind == msgRegion || m.kind == msgPut) {
		return message{}, ErrProtocol
	}
	switch m.kind {
	case msgHello:
		if len(body) != 9 || body[0] != protocol {
			return message{}, ErrProtocol
		}
		keep := binary.LittleEndian.Uint64(body[1:])
		if keep > uint64(MaxKeep) {
			return message{}, ErrProtocol
		}
		m.keep = time.Duration(keep)
	case msgBusy:
		pid, err := strconv.ParseUint(string(body), 10, 31)
		if err != nil || strconv.FormatUint(pid, 10) != string(body) {
			return message{}, ErrProtocol
		}
		m.pid = int(pid)
	case msgRegion, msgPut, msgDrop:
		if !goodName(body) {
			return message{}, ErrProtocol
		}
		m.name = string(body)
	case msgDone:
		if len(body) != 0 {
			return message{}, ErrProtocol
		}
	default:
		return message{}, ErrProtocol
	}
	return m, nil
}

// goodName says whether a name is one that things are kept under.
func goodName(name []byte) bool {
	if len(name) == 0 || len(name) > maxName {
		return false
	}
	for _, b := range name {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}

// send sends a message, with a descriptor if fd is not negative. It ends by the deadline.
func send(c *net.UnixConn, m message, fd int, deadline time.Time) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, _, err := c.WriteMsgUnix(m.bytes(), oob, nil)
	return err
}

// receive receives a message by the deadline; the zero deadline is none. The descriptor is the caller's; it is -1 where none came. After an
// error there is none, whatever the other end has sent.
func receive(c *net.UnixConn, deadline time.Time) (message, int, error) {
	if err := c.SetReadDeadline(deadline); err != nil {
		return message{}, -1, err
	}
	buf, oob := make([]byte, maxMessage+1), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return message{}, -1, err
	}
	fds := rightsOf(oob[:oobn])
	if n == 0 && oobn == 0 {
		return message{}, -1, net.ErrClosed // the other end has closed
	}
	m, err := parse(buf[:n], len(fds) == 1)
	if err != nil || len(fds) > 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		for _, f := range fds {
			closeFD(f)
		}
		return message{}, -1, ErrProtocol
	}
	if len(fds) == 0 {
		return m, -1, nil
	}
	if err := isMemory(fds[0]); err != nil {
		closeFD(fds[0])
		return message{}, -1, err
	}
	return m, fds[0], nil
}

// rightsOf are the descriptors of a message, none of which a child inherits.
func rightsOf(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		list, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, f := range list {
			unix.CloseOnExec(f)
		}
		fds = append(fds, list...)
	}
	return fds
}

// isMemory checks that a descriptor is memory that can be mapped without risk: a memfd of pages of the normal size that can never shrink. Reading behind the
// end of a file, or in a hole that no huge page can fill, would end the process that has it mapped (SIGBUS).
func isMemory(fd int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: a descriptor that is no sealed memory came with it", ErrProtocol)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: a descriptor of another file system came with it", ErrProtocol)
	}
	return nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// A peer is the process at the other end of a connection, as the kernel knows it: for one that listens, the process that did so last.
type peer struct{ pid, uid int }

func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return peer{}, err
	}
	if failed != nil {
		return peer{}, failed
	}
	return peer{pid: int(cred.Pid), uid: int(cred.Uid)}, nil
}

// trusted says whether memory may be passed to the other end, or taken from it: it is of the user uid, or root.
func (p peer) trusted(uid int) error {
	if p.uid != uid && p.uid != 0 {
		return fmt.Errorf("keeper: the other end is of user %d, not of %d", p.uid, uid)
	}
	return nil
}
