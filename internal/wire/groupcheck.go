package wire

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A CheckQuestion is the argument of AdminCheck: text, so that it can be asked by hand.
//
//	put GROUP         of the leader: put a check entry into the group's log
//	at GROUP INDEX    of any replica: what came of the check at that entry
type CheckQuestion struct {
	Group uint32 // not 0
	Index uint64 // 0: put
}

// String is the argument.
func (q CheckQuestion) String() string {
	if q.Index == 0 {
		return fmt.Sprintf("put %d", q.Group)
	}
	return fmt.Sprintf("at %d %d", q.Group, q.Index)
}

// ParseCheckQuestion reads the argument of AdminCheck. It takes any bytes, and of each question one form alone. ErrRange.
func ParseCheckQuestion(b []byte) (q CheckQuestion, err error) {
	verb, rest, _ := strings.Cut(string(b), " ")
	group, index, more := strings.Cut(rest, " ")
	g, err := strconv.ParseUint(group, 10, 32)
	if err == nil && more {
		q.Index, err = strconv.ParseUint(index, 10, 64)
	}
	if q.Group = uint32(g); err != nil || q.Group == 0 || verb != "put" && verb != "at" || q.String() != string(b) {
		return CheckQuestion{}, fmt.Errorf("%w: %.60q, and it is \"put GROUP\" or \"at GROUP INDEX\"", ErrRange, b)
	}
	return q, nil
}

// GroupCheck is the JSON that AdminCheck answers. Fields are only ever added.
type GroupCheck struct {
	Group uint32 `json:"group"`
	Index uint64 `json:"index"` // of the check's entry; 0: none was put
	State string `json:"state"` // one of the words below
	// Leader is the node that leads, with CheckNotLeader: a hint; empty: it is not known.
	Leader  string `json:"leader,omitempty"`
	Digest  string `json:"digest,omitempty"` // with CheckDone: 64 hex digits
	Keys    uint64 `json:"keys"`             // likewise
	Results uint64 `json:"results"`          // of requests, likewise
	Why     string `json:"why,omitempty"`
}

// States of a GroupCheck.
const (
	CheckPut       = "put"        // the entry is in the log, and applied at this node
	CheckNotLeader = "not-leader" // no entry was put: another node leads
	CheckBusy      = "busy"       // a check of the group is under way
	CheckBehind    = "behind"     // the entry is not applied here yet
	CheckWaits     = "waits"      // its place is not on the disk yet
	CheckReads     = "reads"      // the digest is computed
	CheckDone      = "done"
	CheckFailed    = "failed"  // see Why: what is on the disk is damaged, for one
	CheckUnknown   = "unknown" // the node was started since, or has got a state that is behind it, or has forgotten it: put another one
)

// Final says whether the state of a check at a replica will stay.
func (c *GroupCheck) Final() bool {
	switch c.State {
	case CheckBehind, CheckWaits, CheckReads:
		return false
	}
	return true
}

// Valid says whether a node's answer is one to a question: of the same group and entry, in a state that there is, with a digest where there must be one.
func (c *GroupCheck) Valid(q CheckQuestion) bool {
	if c.Group != q.Group || q.Index != 0 && c.Index != q.Index || q.Index == 0 && (c.State == CheckPut) != (c.Index != 0) {
		return false
	}
	sum, err := hex.DecodeString(c.Digest)
	switch c.State {
	case CheckPut, CheckNotLeader:
		return q.Index == 0 && c.Digest == ""
	case CheckDone:
		return q.Index != 0 && err == nil && len(sum) == 32
	case CheckBehind, CheckWaits, CheckReads, CheckFailed, CheckUnknown:
		return q.Index != 0 && c.Digest == ""
	case CheckBusy:
		return c.Digest == ""
	}
	return false
}
