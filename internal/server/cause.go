package server

import "fmt"

// A cause is why a session ended, or was never made. Each is counted in
// kv_sessions_ended_total and has its own budget of log lines.
type cause uint8

const (
	causeNone      cause = iota
	causePeer            // the client went away
	causeShutdown        // this node is stopping
	causeIdle            // silent for longer than Config.Idle
	causeSlow            // did not take its replies, or did not serve READs
	causeSetup           // no Hello within Config.SetupTimeout
	causeBusy            // a cap on sessions was reached
	causeMagic           // private data of another program
	causeVersion         // no version in common
	causeAuth            // wrong secret
	causeTampered        // a message that was altered, repeated or made up on the way
	causeHeader          // a message without a proper header
	causeBody            // a body that does not parse
	causeOrder           // a request before Hello, or a second Hello
	causeCredits         // more requests than credits
	causeAccess          // a READ without the right, a bad rkey
	causePost            // work could not be posted
	causeFabric          // the connection broke in another way
	causeResources       // no memory, no QP
	causeRevoked         // its tenant was revoked, changed or removed
	causeTable           // did not take the new region table
	causeCrowded         // no Hello yet when somebody else needed its place
	causeReplay          // a copy of a request that is being set up
	causeCount
)

var causeNames = [causeCount]string{
	"none", "peer", "shutdown", "idle", "slow", "setup-timeout", "busy", "magic", "version", "auth", "tampered",
	"header", "body", "order", "credits", "access", "post", "fabric", "resources", "revoked", "table",
	"crowded", "replay",
}

func (c cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// blame reports whether the cause is the client's doing, worth a warning.
func (c cause) blame() bool {
	switch c {
	case causeMagic, causeVersion, causeAuth, causeTampered, causeHeader, causeBody, causeOrder, causeCredits, causeAccess, causeSlow, causeSetup, causeReplay:
		return true
	}
	return false
}
