package session

import (
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// statusError turns a server's refusal into an error of this package.
func statusError(err error) error {
	switch wire.StatusOf(err) {
	case wire.StatusNotFound:
		return base.ErrNotFound
	case wire.StatusTooLarge:
		return base.Because(base.ErrTooLarge, err)
	case wire.StatusKeyEmpty:
		return base.ErrKeyEmpty
	case wire.StatusKeyTooLarge:
		return base.Because(base.ErrKeyTooLarge, err)
	case wire.StatusOverloaded, wire.StatusBusy:
		return base.Because(base.ErrOverloaded, err)
	case wire.StatusNoSpace:
		return base.Because(base.ErrNoSpace, err)
	case wire.StatusCorrupt:
		return base.Because(base.ErrCorrupt, err)
	case wire.StatusClosing, wire.StatusIdle:
		return base.NotSent(base.Because(base.ErrClosing, err))
	case wire.StatusVersion:
		return base.Because(base.ErrVersion, err)
	case wire.StatusAuth:
		return base.Because(base.ErrAuth, err)
	case wire.StatusUnknown:
		return base.Because(base.ErrOutcomeUnknown, err)
	case wire.StatusProtocol:
		return base.Because(base.ErrProtocol, err)
	case wire.StatusNotNumber:
		return base.ErrNotNumber // the status says no more
	case wire.StatusNumberRange:
		return base.Because(base.ErrNumberRange, err)
	case wire.StatusCrossShard:
		return base.Because(base.ErrCrossShard, err)
	case wire.StatusBadBatch:
		return base.Because(base.ErrBatch, err)
	case wire.StatusNoMap:
		return base.Because(base.ErrNoMap, err)
	case wire.StatusDenied:
		return base.Because(base.ErrDenied, err)
	case wire.StatusUnsupported:
		return base.Because(base.ErrUnsupported, err)
	}
	return base.Because(base.ErrServer, err)
}

// A Moved is a node's word that the shard of a key is another's.
type Moved struct {
	Session *Session // with the node that says so
	Version uint64   // of the map that it has
	Digest  uint64
	Owner   string // by that map
}

// Error says which node owns the shard, by which map.
func (e *Moved) Error() string {
	return fmt.Sprintf("%v: %q, by version %d of the shard map", base.ErrMoved, e.Owner, e.Version)
}

// Unwrap returns base.ErrMoved.
func (e *Moved) Unwrap() error { return base.ErrMoved }

// A NotLeader is the word of a node that has a replica of a key's group: the replica does not lead,
// and the request has changed nothing. Who leads is a hint.
type NotLeader struct {
	Group  uint32
	Term   uint64 // the newest that the replica knows of; 0: of none
	Leader string // a node; "": none is known

	Session *Session // with the node that has said so; nil in tests
}

// Error says who leads, as far as the node knows.
func (e *NotLeader) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("%v: it knows of no leader of group %d in term %d", base.ErrMoved, e.Group, e.Term)
	}
	return fmt.Sprintf("%v: group %d is led by %q in term %d", base.ErrMoved, e.Group, e.Leader, e.Term)
}

// Unwrap returns base.ErrMoved.
func (e *NotLeader) Unwrap() error { return base.ErrMoved }

// Teller is the session with the node that has said so; nil for no error.
func (e *Moved) Teller() *Session {
	if e == nil {
		return nil
	}
	return e.Session
}
