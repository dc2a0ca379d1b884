package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// checkTables compares the regions that gossip reports of each node with those of
// the session with it: numbers by what the asked node knows, rkeys by the table
// that another node has learned.
func checkTables(ctx context.Context, st *statusReport, r *doctor.Report) {
	k := checker{r}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if !n.Reached || n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		// A node knows its own regions without gossip, so another node has to be
		// asked.
		learner := otherReached(st, n.ID)
		if learner == nil {
			k.r.Add(doctor.Step{Name: "table of", Subject: n.ID, Level: doctor.Skip, Text: "no other node is reached that could have learned of it"})
			continue
		}
		k.table(ctx, n, learner)
	}
}

// tableTries is how often a table is compared, half a second apart: a region that
// has just come is not known everywhere yet, and a healthy cluster must not fail a
// check for that.
const tableTries = 4

// table compares, a few times if need be, what learner has learned of n by gossip
// with the session that was made with n. A difference that stays means that learner
// would READ from memory that is not there, if a client relied on what it was told.
func (k checker) table(ctx context.Context, n, learner *nodeReport) {
	for try := 1; ; try++ {
		learned, keys, err := tables(ctx, n, learner)
		// An answer that does not come is as much a fault as one that differs, and
		// gets as many tries.
		switch {
		case err != nil && try == tableTries:
			k.bad(doctor.Fail, "table of", n.ID, codeTable, "", "%v", err)
			return
		case err == nil:
			missing := missingKeys(learned, keys)
			if len(missing) == 0 {
				k.ok("table of", n.ID, "the rkeys of %d regions of the session are those that %s has learned by gossip", len(keys), learner.ID)
				return
			}
			if try == tableTries {
				k.bad(doctor.Fail, "table of", n.ID, codeTable, "look at gossip between the two: kvclient doctor on both",
					"%s has learned by gossip of %d regions, and not of these of the session, or with other rkeys: %v", learner.ID, len(learned.Regions), missing)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// tables are what learner has learned of n, and the regions of the session with n.
func tables(ctx context.Context, n, learner *nodeReport) (*wire.TableAnswer, []admin.RegionKey, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	text, err := learner.node.Do(ctx, wire.AdminStatus, "table "+n.ID)
	if errors.Is(err, client.ErrNotFound) {
		return nil, nil, fmt.Errorf("%s has learned of no region of it", learner.ID)
	}
	learned := new(wire.TableAnswer)
	if err == nil {
		err = json.Unmarshal(text, learned)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s does not tell what gossip told it: %w", learner.ID, err)
	}
	// The session is asked after the other: if a region comes in between, gossip is
	// late with it, and the next try forgives that.
	keys, err := n.node.RegionKeys(ctx)
	return learned, keys, err
}

// otherReached is a node to ask about the node id: any other that answers, or nil
// if there is none.
func otherReached(st *statusReport, id string) *nodeReport {
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.ID != id && n.Reached && n.Status != nil {
			return n
		}
	}
	return nil
}

// missingKeys lists the regions of a session that a table does not have, or not
// with this address and rkey. It does not matter which of the node's devices has
// them.
func missingKeys(t *wire.TableAnswer, keys []admin.RegionKey) (ids []uint32) {
	have := make(map[admin.RegionKey]bool)
	for _, r := range t.Regions {
		for _, key := range r.Keys {
			have[admin.RegionKey{Region: r.ID, Addr: key.Addr, RKey: key.RKey}] = true
		}
	}
	for _, key := range keys {
		if !have[key] {
			ids = append(ids, key.Region)
		}
	}
	return ids
}
