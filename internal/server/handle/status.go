package handle

import (
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The limits that Welcome tells.
const (
	maxKey   = layout.MaxKeyLen
	maxValue = layout.MaxValueLen
)

// statusTable is the one place where an error of the store or of this package
// becomes a status of the protocol.
var statusTable = []struct {
	err    error
	status wire.Status
}{
	// First: it comes wrapped together with its cause, and a client takes
	// every other status for "nothing was changed" and may try again.
	{store.ErrOutcomeUnknown, wire.StatusUnknown},
	{store.ErrNotFound, wire.StatusNotFound},
	{store.ErrKeyEmpty, wire.StatusKeyEmpty},
	{store.ErrKeyTooLarge, wire.StatusKeyTooLarge},
	{store.ErrTooLarge, wire.StatusTooLarge},
	{store.ErrOverloaded, wire.StatusOverloaded},
	{store.ErrNotLeader, wire.StatusOverloaded}, // its body says more: op.refuse
	{store.ErrNoUpload, wire.StatusBadRequest},
	{store.ErrParts, wire.StatusBadRequest},
	{store.ErrNoSpace, wire.StatusNoSpace},
	{store.ErrReadOnlyDisk, wire.StatusNoSpace},
	{store.ErrCorrupt, wire.StatusCorrupt},
	{store.ErrNotNumber, wire.StatusNotNumber},
	{store.ErrNumberRange, wire.StatusNumberRange},
	{store.ErrCrossShard, wire.StatusCrossShard},
	{store.ErrBatch, wire.StatusBadBatch},
	{store.ErrUnsupported, wire.StatusUnsupported},
	{store.ErrClosed, wire.StatusClosing},
	{store.ErrFatal, wire.StatusClosing},
	{session.ErrNoBuffer, wire.StatusOverloaded},
	{errChecksum, wire.StatusChecksum},
	{context.Canceled, wire.StatusClosing},
	{context.DeadlineExceeded, wire.StatusOverloaded},
}

// statusOf returns the status for an error and the text for the client. The
// text of an internal error stays in the server's log.
func statusOf(err error) (wire.Status, string) {
	for _, row := range statusTable {
		if err == row.err {
			// The status says it all; its own text is the shorter one.
			return row.status, ""
		}
	}
	if no, ok := errors.AsType[*base.Refusal](err); ok {
		return no.Status, no.Text
	}
	for _, row := range statusTable {
		if errors.Is(err, row.err) {
			return row.status, err.Error()
		}
	}
	return wire.StatusInternal, ""
}
