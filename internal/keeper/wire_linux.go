package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// protocol is the version of the messages.
	protocol = 1

	// maxName bounds the name of what is kept, maxKept how many there are, and maxMessage a message.
	maxName    = 64
	maxKept    = 4096
	maxMessage = 128

	// patience is how long either end waits for the other one's next message in the middle of an exchange.
	patience = 5 * time.Second

	msgHello  = 'H'
	msgRegion = 'F'
	msgBusy   = 'B'
	msgPut    = 'P'
	msgDrop   = 'D'
	msgDone   = 'K'
)

// ErrProtocol: the other end says what it must not.
var ErrProtocol = errors.New("keeper: not a message of this protocol")

// send sends a message, with a descriptor if fd is not negative.
func send(c *net.UnixConn, kind byte, body []byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, _, err := c.WriteMsgUnix(append([]byte{kind}, body...), oob, nil)
	return err
}

// receive receives a message. fd is -1 if there was no descriptor; else it is the caller's to close, also after an error of another kind. within is how long it
// may take; 0: as long as the connection lasts.
func receive(c *net.UnixConn, within time.Duration) (kind byte, body []byte, fd int, err error) {
	deadline := time.Time{}
	if within > 0 {
		deadline = time.Now().Add(within)
	}
	if err := c.SetReadDeadline(deadline); err != nil {
		return 0, nil, -1, err
	}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, nil, -1, err
	}
	fds := rightsOf(oob[:oobn])
	if len(fds) > 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n == 0 {
		for _, f := range fds {
			_ = unix.Close(f)
		}
		if n == 0 && len(fds) == 0 {
			return 0, nil, -1, net.ErrClosed // the other end has closed
		}
		return 0, nil, -1, ErrProtocol
	}
	fd = -1
	if len(fds) == 1 {
		fd = fds[0]
	}
	return buf[0], buf[1:n], fd, nil
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

// sameUser says whether the other end of a connection is of this process's user, or root.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(cred.Uid) != os.Getuid() && cred.Uid != 0 {
		return fmt.Errorf("keeper: the other end is of user %d, not of %d", cred.Uid, os.Getuid())
	}
	return nil
}

// hello is the body of the first message of a node.
func hello(keep time.Duration) []byte {
	return binary.LittleEndian.AppendUint64([]byte{protocol}, uint64(max(keep, 0)))
}

// parseHello takes it apart.
func parseHello(body []byte) (keep time.Duration, err error) {
	if len(body) != 9 || body[0] != protocol {
		return 0, ErrProtocol
	}
	n := binary.LittleEndian.Uint64(body[1:])
	if n > uint64(MaxKeep) {
		return 0, ErrProtocol
	}
	return time.Duration(n), nil
}

// MaxKeep bounds how long memory is kept for a node that does not come.
const MaxKeep = 24 * time.Hour

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
