package transport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Two ends of a way agree on the version of the protocol that the way has (internal/wire/node.go). A program of version 1 alone does not, so it is met in that version.

// ErrVersions: two nodes speak no version in common.
var ErrVersions = errors.New("transport: the nodes speak no version of their protocol in common: upgrade one release after another")

// A versionsError is the rejection of a request by a node that speaks lower versions than the request names. It stands for the error of the fabric.
type versionsError struct {
	speaks wire.NodeVersions
	ours   wire.NodeVersions
	err    error
}

// Error names the versions where there is none in common; else the reason is another one.
func (e *versionsError) Error() string {
	if _, ok := e.ours.Common(e.speaks); !ok {
		return fmt.Sprintf("%v: the other one speaks %v, and this one %v: %v", ErrVersions, e.speaks, e.ours, e.err)
	}
	return e.err.Error()
}

// Unwrap makes errors.Is find ErrVersions, and what the fabric says.
func (e *versionsError) Unwrap() []error {
	if _, ok := e.ours.Common(e.speaks); !ok {
		return []error{ErrVersions, e.err}
	}
	return []error{e.err}
}

// foreign is the error of a request that was rejected with private data: a *versionsError if the node which rejected it speaks other versions.
func (t *Transport) foreign(private []byte, ours wire.NodeVersions, err error) error {
	if !errors.Is(err, rdma.ErrRejected) {
		return err
	}
	_, speaks, bad := wire.ParseNodeReject(private)
	if bad != nil || speaks.Max >= ours.Max && speaks.Min <= ours.Max {
		return err
	}
	return &versionsError{speaks, ours, err}
}

// reject is the private data of a rejection.
func (t *Transport) reject(req rdma.ConnRequest, why wire.NodeReject) []byte {
	return wire.AppendNodeReject(nil, req.PrivateData(), t.c.Speaks, why)
}

// olderFor is for how long a node that spoke lower versions alone is asked in these at once. It may be upgraded at any time, and then has to be rejected no request.
const olderFor = time.Minute

// maxOlder bounds the nodes that are remembered; one that is not is asked twice.
const maxOlder = 1024

// older are nodes that speak lower versions alone. Safe for concurrent use.
type older struct {
	mu sync.Mutex
	of map[string]lower
}

// A lower is the highest version that a node spoke, and when that was.
type lower struct {
	version uint8
	at      time.Time
}

// speaks is what a node is told that this one speaks.
func (o *older) speaks(node string, ours wire.NodeVersions) wire.NodeVersions {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, ok := o.of[node]
	switch {
	case ok && time.Since(l.at) >= olderFor:
		delete(o.of, node)
	case ok:
		ours.Max = min(ours.Max, l.version)
	}
	return ours
}

func (o *older) note(node string, version uint8) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || len(o.of) >= maxOlder {
		o.of = make(map[string]lower)
	}
	o.of[node] = lower{version, time.Now()}
}
