package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// ErrRefused: it was proved that this directory must not be served, because
// another process is the node that it belongs to, or was, further on. Open refuses
// it from then on, unless Config.EpochAbove accepts that.
var ErrRefused = errors.New("store: this data directory must not be served")

// A Refusal is why a directory must not be served. It stays in the directory,
// because what proved it may be gone at the next start: the other process stops, or
// those who know of it restart; and what this directory then served as the newest
// would be stale.
type Refusal struct {
	Cause string    // one line; cut at 238 bytes
	Other uint64    // incarnation of the other life
	Epoch uint16    // of the other life; 0: unknown. Refuse raises it to this opening's
	Since time.Time // to the microsecond; set by Refuse
}

// metaRefused is there while the directory must not be served: u64 since,
// microseconds since 1970; u64 other; u16 epoch; the cause.
const metaRefused = "refused"

// maxCause bounds the cause of a Refusal that is read, bytes: those of format 2 are as long.
// refusalHead is what stands before it.
const (
	maxCause    = 512
	refusalHead = 8 + 8 + 2
)

func (r *Refusal) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.Since.UnixMicro()))
	b = binary.LittleEndian.AppendUint64(b, r.Other)
	b = binary.LittleEndian.AppendUint16(b, r.Epoch)
	return append(b, r.Cause...)
}

func parseRefusal(b []byte) (*Refusal, error) {
	if len(b) < refusalHead || len(b) > refusalHead+maxCause {
		return nil, fmt.Errorf("a refusal of %d bytes", len(b))
	}
	return &Refusal{
		Since: time.UnixMicro(int64(binary.LittleEndian.Uint64(b))), Other: binary.LittleEndian.Uint64(b[8:]),
		Epoch: binary.LittleEndian.Uint16(b[16:]), Cause: string(b[refusalHead:]),
	}, nil
}

// refusal is the error of Open where a Refusal stands in the directory that c does
// not accept; nil otherwise.
func (f *facts) refusal(c Config) error {
	r := f.refused
	if r == nil || c.EpochAbove != 0 && c.EpochAbove >= r.Epoch {
		return nil
	}
	return &base.OpenError{Dir: c.Dir,
		Err: fmt.Errorf("%w, since %s: %s", ErrRefused, r.Since.UTC().Format(time.RFC3339), r.Cause),
		Hint: fmt.Sprintf("if it is a copy, delete it; if it is the one to keep, stop the other (life %016x) and start this one once, which the others do not accept of a node with replicas, with --accept-rollback %d",
			r.Other, r.Epoch)}
}

// Refuse notes r durably, at this time, and of this opening's epoch at least.
func (d *Disk) Refuse(r Refusal) error {
	r.Since = time.Now()
	r.Epoch = max(r.Epoch, d.facts.epoch)
	// A longer fact would be refused, and the store fenced with its directory locked.
	r.Cause = r.Cause[:min(len(r.Cause), maxFact-refusalHead)]
	return d.fenceable(func() error { return d.note(metaRefused, r.encode(), true) })
}
