package client

import "github.com/rdmakv/rdmakv/client/internal/base"

// What a call can fail with. Every error of this package is an *Error that
// wraps one of these, so that errors.Is decides and errors.As shows the rest.
var (
	// ErrNotFound: the store has no such key.
	ErrNotFound = base.ErrNotFound
	// ErrKeyEmpty: keys have at least one byte.
	ErrKeyEmpty = base.ErrKeyEmpty
	// ErrKeyTooLarge: the key is longer than the server allows.
	ErrKeyTooLarge = base.ErrKeyTooLarge
	// ErrTooLarge: the value is longer than the server allows.
	ErrTooLarge = base.ErrTooLarge
	// ErrRange: GetRange was asked for an offset beyond the end of the value,
	// or for a negative offset or length.
	ErrRange = base.ErrRange
	// ErrClosed: the Client has been closed.
	ErrClosed = base.ErrClosed
	// ErrTimeout: the call's context, or without a deadline in it
	// Config.Timeout, ended before the server had answered. A context that
	// was cancelled or ran out shows as its own error too (errors.Is with
	// context.Canceled or context.DeadlineExceeded). For a write that may have
	// taken effect the error is ErrOutcomeUnknown instead.
	ErrTimeout = base.ErrTimeout
	// ErrUnavailable: no server could be reached, or of the replicas of a shard none led until the
	// time was over. Nothing was changed.
	ErrUnavailable = base.ErrUnavailable
	// ErrOutcomeUnknown: a write was sent, perhaps several times, and its time
	// was over before a reply came. It may have taken effect, once, or may still
	// do so within the server's time for a session that is silent. Reading the
	// key tells, unless others write it too.
	ErrOutcomeUnknown = base.ErrOutcomeUnknown
	// ErrOverloaded: a bound was reached, here (calls waiting for a free
	// credit, staging memory, memory that the device registers) or, until the
	// call's time was over, at the server. Nothing was changed; try again later.
	ErrOverloaded = base.ErrOverloaded
	// ErrNoSpace: the server's disk is full. Nothing was changed.
	ErrNoSpace = base.ErrNoSpace
	// ErrVersion: client and server have no protocol version in common.
	ErrVersion = base.ErrVersion
	// ErrAuth: the server refused the shared secret, or did not know it itself.
	ErrAuth = base.ErrAuth
	// ErrCorrupt: the server found its copy of the value damaged.
	ErrCorrupt = base.ErrCorrupt
	// ErrReplaced: the value was replaced while GetWriter wrote it, and its parts are gone. What was
	// written is the beginning of the former one.
	ErrReplaced = base.ErrReplaced
	// ErrProtocol: the server said something that makes no sense. The
	// connection was given up.
	ErrProtocol = base.ErrProtocol
	// ErrServer: the server failed in a way it had no better word for.
	ErrServer = base.ErrServer
	// ErrNoRDMA: Config.RequireRDMA is set, and no fabric but one that is done in
	// software reaches the server. The text has the reason for each.
	ErrNoRDMA = base.ErrNoRDMA
	// ErrDenied: the tenant has not the right to do this. Nothing was changed.
	ErrDenied = base.ErrDenied
	// ErrNoMap: the nodes of the cluster have not agreed yet which of them owns
	// which keys: ClusterInit of client/admin has them do that, once. If the cluster has a map, and
	// none of the nodes that have it was reached, the error is ErrUnavailable.
	ErrNoMap = base.ErrNoMap
	// ErrMoved: the node that was asked does not own the key. A Client that is not
	// Config.Direct meets it only if nodes contradict each other. Nothing was
	// changed.
	ErrMoved = base.ErrMoved
	// ErrOtherCluster: the server belongs to another cluster than the one that
	// this Client uses, or has another shard map than that. It was not used.
	ErrOtherCluster = base.ErrOtherCluster
	// ErrUnknownNode: no node of the cluster has that id.
	ErrUnknownNode = base.ErrUnknownNode
	// ErrConfig: a field of Config is out of range.
	ErrConfig = base.ErrConfig
)

// What conditional and numeric writes fail with. None of these has changed
// anything.
var (
	// ErrExists: a put if absent found the key. The error is a *VersionError.
	ErrExists = base.ErrExists
	// ErrVersionMismatch: the key has another version than the one demanded, or
	// does not exist. The error is a *VersionError.
	ErrVersionMismatch = base.ErrVersionMismatch
	// ErrNotNumber: the value to be incremented is no decimal int64.
	ErrNotNumber = base.ErrNotNumber
	// ErrNumberRange: an increment would leave the range of an int64.
	ErrNumberRange = base.ErrNumberRange
	// ErrCrossShard: the keys of a batch are not all of one shard. Keys with the
	// same {tag} always are: what stands between the first { and the next }.
	ErrCrossShard = base.ErrCrossShard
	// ErrBatch: a batch is empty, too large, or has a key twice.
	ErrBatch = base.ErrBatch
	// ErrOptions: the options of a call are out of range or exclude each other.
	ErrOptions = base.ErrOptions
	// ErrUnsupported: the server does not do this in its mode (a store without
	// a disk cannot scan, say).
	ErrUnsupported = base.ErrUnsupported
)

// An Error says which call failed, against which server and on which key. Its fields: Op,
// the call ("get", "put", "dial", …); Server, the address, "" when none was involved; Node, the
// id of the node in a cluster, or ""; Key, quoted and cut to a few dozen bytes, "" when the call
// has no key; Err, which wraps one of the sentinels above, and the cause if there is one. Its
// text is one line: operation, key, server, reason. Timeout reports whether the call ended
// because of its deadline.
type Error = base.Error

// A VersionError says which version a key had when a condition on it was judged and found not to
// hold. It is ErrExists or ErrVersionMismatch (errors.Is). Its fields: Actual, the key's version,
// 0 if it did not exist; Part, which part of a batch was refused, from 0.
type VersionError = base.VersionError

// A PartialError is the outcome of a call with several keys (MultiGet, MultiPut), or to several
// nodes of a cluster, that did not succeed everywhere. What is not among its failures was done. Its fields: Total, how many keys, pairs or
// nodes the call had; Failures, by index, then by node. errors.Is finds any of their reasons.
type PartialError = base.PartialError

// A Failure is one thing that such a call could not do. Its fields: Index, of the
// key or pair in the call, -1 for the node as a whole; Node, whose it was, "" if no map said
// that; Err, why.
type Failure = base.Failure

// A DialError is why Dial has given up after several attempts. Its fields: Err, of the last
// attempt that was not cut short by the deadline; Attempts, how many there were; Took, for how
// long.
type DialError = base.DialError

// An Unreached says why an attempt to connect to one address failed. Every error of a call for
// want of a connection holds one for each address of the last attempt; UnreachedServers finds
// them. Its fields: Server, the address that was tried, host:port; Node, the id of the node that
// was looked for in a cluster, or ""; Fabric, the fabric that came farthest; Err, why that one
// failed, which wraps the fabric's own error; Asked, whether a device of Fabric asked for a
// connection (if not, no device leads to the address); Answered, whether a server of this
// protocol answered there, so that Err is its refusal, or its silence after that.
type Unreached = base.Unreached

// UnreachedServers lists the addresses that could not be connected, as far as an error of this
// package tells of them, each address once. It is empty if the call failed for another reason.
func UnreachedServers(err error) []*Unreached { return base.UnreachedServers(err) }
