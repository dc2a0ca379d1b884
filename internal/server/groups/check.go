package groups

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// checkPut bounds how long the entry of a check may take: a majority takes one within milliseconds, and a leader without one learns that it
// leads no more in less.
const checkPut = 3 * time.Second

// Check answers an operator who compares replicas (wire.AdminCheck). The entry is waited for, and digests are not: they are asked for until
// they are there.
//
// Errors: *base.Refusal, those of the store, ctx's.
func (g *Groups) Check(ctx context.Context, argument []byte) ([]byte, error) {
	q, err := wire.ParseCheckQuestion(argument)
	if err != nil {
		return nil, &base.Refusal{Status: wire.StatusBadRequest, Text: err.Error()}
	}
	if g == nil || g.mapped() == nil {
		return nil, &base.Refusal{Status: wire.StatusUnsupported, Text: "there are no replicas here: nothing can be compared"}
	}
	var answer *wire.GroupCheck
	if q.Index == 0 {
		answer, err = g.put(ctx, consensus.GroupID(q.Group))
	} else {
		answer, err = g.checkAt(consensus.GroupID(q.Group), q.Index)
	}
	switch {
	case errors.Is(err, consensus.ErrNoGroup):
		return nil, &base.Refusal{Status: wire.StatusNotFound, Text: fmt.Sprintf("this node has no replica of group %d", q.Group)}
	case err != nil:
		return nil, err
	}
	return json.Marshal(answer)
}

// put puts a check entry into a group's log.
func (g *Groups) put(ctx context.Context, id consensus.GroupID) (*wire.GroupCheck, error) {
	within, cancel := context.WithTimeout(ctx, checkPut)
	defer cancel()
	index, err := store.CheckGroup(within, g.env.Store(), id)
	answer := &wire.GroupCheck{Group: uint32(id), Index: index, State: wire.CheckPut}
	not, isLed := errors.AsType[*store.NotLeaderError](err)
	switch {
	case isLed:
		answer.State, answer.Leader = wire.CheckNotLeader, g.NodeOf(id, not.Leader)
	case errors.Is(err, store.ErrOverloaded):
		answer.State, answer.Why = wire.CheckBusy, err.Error()
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return nil, &base.Refusal{Status: wire.StatusOverloaded, Text: fmt.Sprintf("no majority of group %d has taken the check within %v: see cluster status", id, checkPut)}
	case err != nil:
		return nil, err
	}
	return answer, nil
}

// checkAt says what came of a check at this node.
func (g *Groups) checkAt(id consensus.GroupID, index uint64) (*wire.GroupCheck, error) {
	c, err := store.CheckOf(g.env.Store(), id, index)
	if err != nil {
		return nil, err
	}
	answer := &wire.GroupCheck{Group: uint32(id), Index: index, State: stateOf(&c)}
	switch {
	case c.Err != nil:
		answer.Why = wire.CleanText([]byte(c.Err.Error()))
	case c.State == store.CheckDone:
		answer.Digest, answer.Keys, answer.Results = hex.EncodeToString(c.Digest.Sum[:]), c.Digest.Keys, c.Digest.Results
	}
	return answer, nil
}

// stateOf is the word for the state of a check.
func stateOf(c *store.GroupCheck) string {
	switch c.State {
	case store.CheckBehind:
		return wire.CheckBehind
	case store.CheckWaits:
		return wire.CheckWaits
	case store.CheckReads:
		return wire.CheckReads
	case store.CheckDone:
		return wire.CheckDone
	case store.CheckFailed:
		switch {
		case errors.Is(c.Err, store.ErrOvertaken): // as if this process had begun later
			return wire.CheckUnknown
		case errors.Is(c.Err, store.ErrOverloaded):
			return wire.CheckBusy
		}
		return wire.CheckFailed
	}
	return wire.CheckUnknown
}
