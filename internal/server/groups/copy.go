package groups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// copyOpen bounds how long one question may wait for the disk to be as far as the log; whoever asks again goes on waiting for the same checkpoint.
const copyOpen = 3 * time.Second

// Copy answers whoever makes a backup (wire.AdminCopy).
//
// Errors: *base.Refusal, those of the store, ctx's.
func Copy(ctx context.Context, g *Groups, argument []byte) ([]byte, error) {
	q, err := wire.ParseCopyQuestion(argument)
	if err != nil {
		return nil, &base.Refusal{Status: wire.StatusBadRequest, Text: err.Error()}
	}
	if g == nil || g.mapped() == nil {
		return nil, &base.Refusal{Status: wire.StatusUnsupported, Text: "there are no replicas here: this backup is of clusters with replicas; kvserver backup is for one node"}
	}
	switch q.Do {
	case wire.CopyOpen:
		return openCopy(ctx, g, consensus.GroupID(q.Group))
	case wire.CopyRead:
		return readCopy(ctx, g.env.Store(), &q)
	}
	if err := store.CloseCopy(g.env.Store(), q.ID); err != nil {
		return nil, noCopy(err)
	}
	return json.Marshal(&wire.CopyAnswer{State: wire.CopyClosed})
}

// openCopy opens a copy of a group that this node leads.
func openCopy(ctx context.Context, g *Groups, id consensus.GroupID) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, copyOpen)
	defer cancel()
	c, err := store.CopyGroup(within, g.env.Store(), id)
	answer := &wire.CopyAnswer{Group: uint32(id), State: wire.CopyOpened, ID: c.ID, Index: c.Index, Term: c.Term, Shards: c.Shards}
	not, isLed := errors.AsType[*store.NotLeaderError](err)
	switch {
	case isLed:
		answer.State, answer.Leader = wire.CopyNotLeader, g.NodeOf(id, not.Leader)
	case errors.Is(err, store.ErrOverloaded):
		answer.State, answer.Why = wire.CopyBusy, wire.CleanText([]byte(err.Error()))
	case errors.Is(err, consensus.ErrNoGroup):
		return nil, &base.Refusal{Status: wire.StatusNotFound, Text: fmt.Sprintf("this node has no replica of group %d", id)}
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		answer.State, answer.Why = wire.CopyBusy, fmt.Sprintf("the disk is not as far as the log of group %d after %v", id, copyOpen)
	case err != nil:
		return nil, err
	}
	return json.Marshal(answer)
}

// readCopy makes a page of a copy. A page has all records whole, or one piece of one record.
func readCopy(ctx context.Context, s *store.Store, q *wire.CopyQuestion) ([]byte, error) {
	page, count, bytes, more := wire.BeginCopyPage(nil), 0, 0, false
	err := store.ReadCopy(ctx, s, q.ID, q.Shard, q.Key, q.Offset > 0, func(rec store.CopyRecord) bool {
		r := wire.CopyRecord{Key: rec.Key, Expiry: rec.Expiry, Size: uint32(len(rec.Value)), Data: rec.Value}
		switch {
		case q.Offset > 0:
			if string(rec.Key) != string(q.Key) || int(q.Offset) >= len(rec.Value) {
				return false
			}
			r.Offset, r.Data = q.Offset, rec.Value[q.Offset:]
			fallthrough
		case len(r.Data) > wire.CopyPiece:
			if more = true; count > 0 {
				return false // it is alone in its page
			}
			r.Data = r.Data[:min(len(r.Data), wire.CopyPiece)]
			page, count = wire.AppendCopyRecord(page, &r), 1
			return false
		case count > 0 && bytes+len(rec.Key)+len(rec.Value) > wire.CopyPage:
			more = true
			return false
		}
		page, count, bytes = wire.AppendCopyRecord(page, &r), count+1, bytes+len(rec.Key)+len(rec.Value)
		return true
	})
	if err == nil && q.Offset > 0 && count == 0 {
		err = &base.Refusal{Status: wire.StatusBadRequest, Text: fmt.Sprintf("the copy has no value there with bytes from %d on", q.Offset)}
	}
	if err != nil {
		return nil, noCopy(err)
	}
	return wire.EndCopyPage(page, count, more), nil
}

// noCopy is what a client is told of an error of a copy.
func noCopy(err error) error {
	switch {
	case errors.Is(err, store.ErrNoCopy):
		return &base.Refusal{Status: wire.StatusNotFound, Text: err.Error()}
	case errors.Is(err, store.ErrShard):
		return &base.Refusal{Status: wire.StatusBadRequest, Text: "the group has no such shard"}
	}
	return err
}
