package base

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A Cause is why a session ended, or was never made. Each is counted in
// rdmakv_sessions_ended_total.
type Cause uint8

const (
	CauseNone      Cause = iota
	CausePeer            // the client went away
	CauseShutdown        // this node is stopping
	CauseIdle            // silent for longer than Config.Idle
	CauseSlow            // did not take its replies, or did not serve READs
	CauseSetup           // no Hello within Config.SetupTimeout
	CauseBusy            // a cap on sessions was reached
	CauseMagic           // private data of another program
	CauseVersion         // no version in common
	CauseAuth            // wrong secret
	CauseTampered        // a message that was altered, repeated or made up on the way
	CauseHeader          // a message without a proper header
	CauseBody            // a body that does not parse
	CauseOrder           // a request before Hello, or a second Hello
	CauseCredits         // more requests than credits
	CauseAccess          // a READ without the right, a bad rkey
	CausePost            // work could not be posted
	CauseFabric          // the connection broke in another way
	CauseResources       // no memory, no QP
	CauseRevoked         // its tenant was revoked, changed or removed
	CauseTable           // did not take the new region table
	CauseCrowded         // no Hello yet when somebody else needed its place
	CauseReplay          // a copy of a request that is being set up
	CauseCount
)

var causeNames = [CauseCount]string{
	"none", "peer", "shutdown", "idle", "slow", "setup-timeout", "busy", "magic", "version", "auth", "tampered",
	"header", "body", "order", "credits", "access", "post", "fabric", "resources", "revoked", "table",
	"crowded", "replay",
}

func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// Blame reports whether the cause is the client's doing, worth a warning.
func (c Cause) Blame() bool {
	switch c {
	case CauseMagic, CauseVersion, CauseAuth, CauseTampered, CauseHeader, CauseBody, CauseOrder, CauseCredits, CauseAccess, CauseSlow, CauseSetup, CauseReplay:
		return true
	}
	return false
}

// CauseOf is the cause that the error of a QP stands for which died by itself; nil, when
// there was no error, is that of a client that went away.
func CauseOf(err error) Cause {
	switch {
	case errors.Is(err, rdma.ErrPeerGone), errors.Is(err, rdma.ErrClosed), err == nil:
		return CausePeer
	case errors.Is(err, rdma.ErrAccess):
		return CauseAccess
	case errors.Is(err, rdma.ErrReceiverNotReady):
		return CauseCredits
	}
	return CauseFabric
}

// A Refusal is the error of a question that is answered with a status of the protocol
// and a text for the client. Every other error is told as the table of statuses says.
type Refusal struct {
	Status wire.Status
	Text   string
}

func (e *Refusal) Error() string { return e.Text }

// Refuse makes a Refusal.
func Refuse(st wire.Status, format string, args ...any) error {
	return &Refusal{st, fmt.Sprintf(format, args...)}
}
