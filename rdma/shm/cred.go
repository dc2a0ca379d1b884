//go:build linux

package shm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// errUntrusted: the process at the other end of a socket may not see our memory,
// or does not run as the user that it should.
var errUntrusted = errors.New("the process at the other end belongs to another user")

// overflowUID is what the kernel shows of a user that our user namespace does not
// know. It may be any user.
const overflowUID = 65534

// judge decides about the process at the other end of conn, by what the kernel
// says of it (SO_PEERCRED). owner is a further user to trust: the owner of the
// directory for a dialer, ^0 for none.
func (f *Fabric) judge(conn *net.UnixConn, dialing bool, owner uint32) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return f.opts.Trust.judge(cred.Uid, uint32(os.Geteuid()), dialing, owner)
}

// judge decides by user ids: peer is the other process's, self this one's, owner
// that of the directory.
func (t Trust) judge(peer, self uint32, dialing bool, owner uint32) error {
	switch {
	case peer == self && peer != overflowUID:
		return nil
	case t == Trusted && (!dialing || peer == 0 || peer == owner):
		return nil
	case peer == overflowUID:
		return fmt.Errorf("%w: one that this user namespace does not know (shm: trusted would allow it)", errUntrusted)
	}
	return fmt.Errorf("%w: %d, this is %d (shm: trusted would allow it)", errUntrusted, peer, self)
}
