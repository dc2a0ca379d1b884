// Package base is the ground floor of the client: what its rooms and its facade say to each
// other and to programs, the errors of calls (errors, conditions, partial, unreached), what is
// counted of them (counts, latency), what is told of a server (info), and how long a call may wait (clock: Clock, Limit).
// Package client gives its public names to programs. Nothing here has a connection or a
// goroutine.
package base

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/store/layout"
)

// What a call can fail with. Every error of this package is an *Error that
// wraps one of these, so that errors.Is decides and errors.As shows the rest.
var (
	// ErrNotFound: the store has no such key.
	ErrNotFound = errors.New("key not found")
	// ErrKeyEmpty: keys have at least one byte.
	ErrKeyEmpty = errors.New("key is empty: keys have 1 to 4096 bytes")
	// ErrKeyTooLarge: the key is longer than the server allows.
	ErrKeyTooLarge = errors.New("key is too large")
	// ErrTooLarge: the value is longer than the server allows.
	ErrTooLarge = errors.New("value is too large")
	// ErrRange: GetRange was asked for an offset beyond the end of the value,
	// or for a negative offset or length.
	ErrRange = errors.New("range lies outside the value")
	// ErrClosed: the Client has been closed.
	ErrClosed = errors.New("client is closed")
	// ErrTimeout: the call's context, or without a deadline in it
	// Config.Timeout, ended before the server had answered. A context that
	// was cancelled or ran out shows as its own error too (errors.Is with
	// context.Canceled or context.DeadlineExceeded). For a write that may have
	// taken effect the error is ErrOutcomeUnknown instead.
	ErrTimeout = errors.New("no answer in time")
	// ErrUnavailable: no server could be reached, or of the replicas of a shard none led until the
	// time was over. Nothing was changed.
	ErrUnavailable = errors.New("server is unavailable")
	// ErrOutcomeUnknown: a write was sent, perhaps several times, and its time
	// was over before a reply came. It may have taken effect, once, or may still
	// do so within the server's time for a session that is silent. Reading the
	// key tells, unless others write it too.
	ErrOutcomeUnknown = errors.New("outcome unknown: the request was sent, but no reply came")
	// ErrOverloaded: a bound was reached, here (calls waiting for a free
	// credit, staging memory, memory that the device registers) or, until the
	// call's time was over, at the server. Nothing was changed; try again later.
	ErrOverloaded = errors.New("too much in flight")
	// ErrNoSpace: the server's disk is full. Nothing was changed.
	ErrNoSpace = errors.New("server has no disk space left")
	// ErrVersion: client and server have no protocol version in common.
	ErrVersion = errors.New("no protocol version in common")
	// ErrAuth: the server refused the shared secret, or did not know it itself.
	ErrAuth = errors.New("authentication failed")
	// ErrCorrupt: the server found its copy of the value damaged.
	ErrCorrupt = errors.New("stored value is corrupt")
	// ErrReplaced: the value was replaced while GetWriter wrote it, and its parts are gone. What was
	// written is the beginning of the former one.
	ErrReplaced = errors.New("the value was replaced while it was being read")
	// ErrProtocol: the server said something that makes no sense. The
	// connection was given up.
	ErrProtocol = errors.New("protocol violation by the server")
	// ErrServer: the server failed in a way it had no better word for.
	ErrServer = errors.New("server error")
	// ErrNoRDMA: Config.RequireRDMA is set, and no fabric but one that is done in
	// software reaches the server. The text has the reason for each.
	ErrNoRDMA = errors.New("no RDMA device reaches the server")
	// ErrDenied: the tenant has not the right to do this. Nothing was changed.
	ErrDenied = errors.New("not allowed for this tenant")
	// ErrNoMap: the nodes of the cluster have not agreed yet which of them owns
	// which keys: ClusterInit has them do that, once. If the cluster has a map, and
	// none of the nodes that have it was reached, the error is ErrUnavailable.
	ErrNoMap = errors.New("the cluster has no shard map yet: \"kvclient cluster init\" with the ids of all nodes gives it one")
	// ErrMoved: the node that was asked does not own the key. A Client that is not
	// Config.Direct meets it only if nodes contradict each other. Nothing was
	// changed.
	ErrMoved = errors.New("the key belongs to another node")
	// ErrOtherCluster: the server belongs to another cluster than the one that
	// this Client uses, or has another shard map than that. It was not used.
	ErrOtherCluster = errors.New("server of another cluster")
	// ErrUnknownNode: no node of the cluster has that id.
	ErrUnknownNode = errors.New("no such node is known")
	// ErrConfig: a field of Config is out of range.
	ErrConfig = errors.New("invalid configuration")
)

// An Error says which call failed, against which server and on which key.
type Error struct {
	Op     string // "get", "put", "dial", …
	Server string // address, or "" when none was involved
	Node   string // id of the node in a cluster, or ""
	Key    string // quoted, cut to a few dozen bytes; "" when the call has no key
	Err    error  // wraps one of the sentinels above, and the cause if there is one
}

// Error is one line: operation, key, server, reason.
func (e *Error) Error() string {
	s := "rdmakv " + e.Op
	if e.Key != "" {
		s += " " + e.Key
	}
	switch {
	case e.Node != "" && e.Server != "":
		s += " at " + e.Node + " (" + e.Server + ")"
	case e.Node != "":
		s += " at " + e.Node
	case e.Server != "":
		s += " at " + e.Server
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the call ended because of its deadline.
func (e *Error) Timeout() bool {
	return errors.Is(e.Err, ErrTimeout) || errors.Is(e.Err, context.DeadlineExceeded)
}

// keyShown is how much of a key an error shows, in bytes.
const keyShown = 48

// QuoteKey is key as errors show it: quoted, and cut.
func QuoteKey(key []byte) string {
	if key == nil {
		return ""
	}
	if len(key) > keyShown {
		return strconv.Quote(string(key[:keyShown])) + fmt.Sprintf("…(%d bytes)", len(key))
	}
	return strconv.Quote(string(key))
}

// causeError is a sentinel with the reason behind it. Both can be found with
// errors.Is; the text shows both.
type causeError struct {
	class, cause error
}

func (e *causeError) Error() string {
	class, cause := e.class.Error(), e.cause.Error()
	if rest, same := strings.CutPrefix(cause, class); same && (rest == "" || strings.HasPrefix(rest, ":")) {
		return cause // a server's words for the same thing
	}
	return class + ": " + cause
}

func (e *causeError) Unwrap() []error { return []error{e.class, e.cause} }

// Because wraps cause in class; without a cause it is class itself.
func Because(class, cause error) error {
	if cause == nil || cause == class {
		return class
	}
	if errors.Is(cause, class) {
		return cause
	}
	return &causeError{class, cause}
}

// Caused is class because of cause, whatever cause wraps.
func Caused(class, cause error) error { return &causeError{class, cause} }

// Reasoned is a call's error with another reason, which is made of the one that it has. An
// error that is no *Error is a reason itself.
func Reasoned(err error, change func(error) error) error {
	e := (*Error)(nil)
	if !errors.As(err, &e) {
		return change(err)
	}
	of := *e
	of.Err = change(e.Err)
	return &of
}

// AsTimeout is the end of a context as calls tell it.
func AsTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return Because(ErrTimeout, err)
	}
	return err
}

// CheckKey refuses keys that no server takes.
func CheckKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrKeyEmpty
	case len(key) > layout.MaxKeyLen:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKeyTooLarge, len(key), layout.MaxKeyLen)
	}
	return nil
}
