package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// How cluster check compares the replicas of each group: the leader puts a check entry into the group's log, every replica computes a
// digest of what it has on disk at that place, and the digests are asked for here, because a replica alone cannot know which of
// two is right.

// Codes of the comparison; never renamed.
const (
	codeReplicaDiffers = "replica-differs"    // it has other keys than the others at the same place
	codeReplicaDamaged = "replica-damaged"    // what it has on disk cannot be read
	codeReplicaLate    = "replica-late"       // no digest in time: it is behind, or reads still
	codeReplicaSilent  = "replica-silent"     // its node does not answer
	codeNotCompared    = "group-not-compared" // there is nothing to compare
)

type (
	// A comparison is what came of the check of one group. Names in JSON are never changed.
	comparison struct {
		Group    uint32       `json:"group"`
		Index    uint64       `json:"index"`         // of the check's entry; 0: there is none
		Why      string       `json:"why,omitempty"` // there is none
		Replicas []comparedOf `json:"replicas"`      // by id
		majority int          // how many of the group's voters are one
	}
	// A comparedOf is one replica in it.
	comparedOf struct {
		Node    string `json:"node"`
		Replica uint64 `json:"replica"`
		Votes   bool   `json:"votes"`
		State   string `json:"state"` // as in wire.GroupCheck; silent: its node has not answered
		Digest  string `json:"digest"`
		Keys    uint64 `json:"keys"`
		Results uint64 `json:"results"`
		Why     string `json:"why,omitempty"`
	}
)

// stateSilent is the state of a replica whose node has not answered.
const stateSilent = "silent"

// An asker asks a node a question, and returns a valid answer.
type asker func(ctx context.Context, node string, q wire.CheckQuestion) (wire.GroupCheck, error)

// asking is the asker of a status's nodes.
func asking(st *statusReport) asker {
	return func(ctx context.Context, node string, q wire.CheckQuestion) (c wire.GroupCheck, err error) {
		i := slices.IndexFunc(st.Nodes, func(n nodeReport) bool { return n.ID == node })
		if i < 0 || st.Nodes[i].node == nil || !st.Nodes[i].Reached {
			return c, fmt.Errorf("node %s is not reached", node)
		}
		ctx, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		text, err := st.Nodes[i].node.Do(ctx, wire.AdminCheck, q.String())
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err == nil && !c.Valid(q) {
			err = fmt.Errorf("node %s answers %q with what is no answer to that", node, q)
		}
		return c, err
	}
}

const (
	putFor    = 10 * time.Second       // how long a leader is looked for that takes a check
	putPause  = 200 * time.Millisecond // between two looks
	askFirst  = 20 * time.Millisecond  // between two questions for a digest, at first
	askMost   = time.Second
	checkings = 3 // checks of a group, if a replica knows nothing of the one before it
)

// compare compares the replicas of all groups, and judges them. While a rolling upgrade goes on it does not: a program of before check entries stops
// its part in a group when it meets one.
func (k checker) compare(ctx context.Context, st *statusReport, ask asker, wait time.Duration) []comparison {
	if len(st.Groups) > 0 && len(st.versions()) > 1 {
		k.r.Add(doctor.Step{Name: "replicas", Level: doctor.Skip, Text: "they are not compared: the nodes run different releases, and an older one may not know what is asked; finish the rolling upgrade first"})
		return nil
	}
	all := compareGroups(ctx, st.Groups, ask, wait)
	for i := range all {
		k.compared(&all[i])
	}
	return all
}

// compareGroups compares the replicas of each group in turn. wait is how long replicas have for the digest of a group.
func compareGroups(ctx context.Context, groups []admin.Group, ask asker, wait time.Duration) (all []comparison) {
	for i := range groups {
		c := comparison{Group: groups[i].ID, Replicas: []comparedOf{}, Why: "the command ended before"}
		// A replica that has got another's state, or has begun, behind the entry does not know of it.
		for try := 0; try < checkings && ctx.Err() == nil; try++ {
			c = compareGroup(ctx, &groups[i], ask, wait)
			if !slices.ContainsFunc(c.Replicas, func(r comparedOf) bool { return r.State == wire.CheckUnknown || r.State == wire.CheckBusy }) {
				break
			}
		}
		all = append(all, c)
	}
	return all
}

// compareGroup compares those of one group.
func compareGroup(ctx context.Context, g *admin.Group, ask asker, wait time.Duration) comparison {
	c := comparison{Group: g.ID, Replicas: []comparedOf{}}
	voters := 0
	for _, p := range g.Replicas {
		c.Replicas = append(c.Replicas, comparedOf{Node: p.Node, Replica: p.ID, Votes: p.Votes, State: stateSilent})
		if p.Votes {
			voters++
		}
	}
	c.majority = voters/2 + 1
	if c.Index, c.Why = putCheck(ctx, g, ask); c.Index == 0 {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for pause := askFirst; ; pause = min(2*pause, askMost) {
		atOnce(len(c.Replicas), func(i int) { c.Replicas[i].ask(ctx, wire.CheckQuestion{Group: g.ID, Index: c.Index}, ask) })
		if !slices.ContainsFunc(c.Replicas, (comparedOf).open) {
			return c
		}
		select {
		case <-ctx.Done():
			return c
		case <-time.After(pause):
		}
	}
}

// putCheck has the leader of a group put a check into its log. why: nobody did.
func putCheck(ctx context.Context, g *admin.Group, ask asker) (index uint64, why string) {
	ctx, cancel := context.WithTimeout(ctx, putFor)
	defer cancel()
	next := g.Leader
	for at := 0; len(g.Replicas) > 0; at++ {
		node := next
		if next = ""; node == "" {
			node = g.Replicas[at%len(g.Replicas)].Node
		}
		c, err := ask(ctx, node, wire.CheckQuestion{Group: g.ID})
		switch {
		case err != nil && ctx.Err() == nil:
			why = err.Error()
		case err != nil:
		case c.State == wire.CheckPut:
			return c.Index, ""
		case c.State == wire.CheckBusy:
			why, next = "another check of the group is under way at "+node, node
		default:
			// A hint may be wrong, and lead round in circles: then the replicas are asked in turn.
			if why = "no replica says that it leads the group"; c.Leader != node && at%2 == 0 && slices.ContainsFunc(g.Replicas, func(p admin.Replica) bool { return p.Node == c.Leader }) {
				next = c.Leader
				continue
			}
		}
		select {
		case <-ctx.Done():
			return 0, cmp.Or(why, "nobody has answered in time")
		case <-time.After(putPause):
		}
	}
	return 0, "no replica of it is known"
}

// open says whether a replica may still come to a digest.
func (r comparedOf) open() bool {
	return r.State == wire.CheckBehind || r.State == wire.CheckWaits || r.State == wire.CheckReads
}

// ask asks a replica, unless it is through with the check. One that has answered once is asked again when it does not answer; the others have had their
// time with cluster status.
func (r *comparedOf) ask(ctx context.Context, q wire.CheckQuestion, ask asker) {
	if r.State != stateSilent && !r.open() || r.State == stateSilent && r.Why != "" {
		return
	}
	c, err := ask(ctx, r.Node, q)
	switch {
	case err != nil && r.State == stateSilent:
		r.Why = err.Error()
	case err == nil:
		r.State, r.Digest, r.Keys, r.Results, r.Why = c.State, c.Digest, c.Keys, c.Results, c.Why
	}
}

// compared judges the comparison of a group.
func (k checker) compared(c *comparison) {
	name, subject := "replicas of", fmt.Sprintf("group %d", c.Group)
	if c.Index == 0 {
		k.bad(doctor.Fail, name, subject, codeNotCompared, "kvclient cluster status shows who leads", "they are not compared: %s", doctor.OneLine(c.Why))
		return
	}
	same := make(map[string][]string) // nodes, by digest
	for i := range c.Replicas {
		if r := &c.Replicas[i]; r.State == wire.CheckDone {
			same[r.Digest] = append(same[r.Digest], doctor.OneLine(r.Node))
		}
	}
	most := "" // the digest of most
	for digest, nodes := range same {
		if len(nodes) > len(same[most]) || len(nodes) == len(same[most]) && digest < most {
			most = digest
		}
	}
	k.others(c, most, same)
	for i := range c.Replicas {
		k.unfinished(subject, &c.Replicas[i])
	}
	switch {
	case len(same) > 1:
	case len(same[most]) < 2:
		k.bad(doctor.Warn, name, subject, codeNotCompared, "", "fewer than two of its %d replicas have a digest at entry %d: there is nothing to compare", len(c.Replicas), c.Index)
	default:
		i := slices.IndexFunc(c.Replicas, func(r comparedOf) bool { return r.State == wire.CheckDone })
		r := &c.Replicas[i]
		k.ok(name, subject, "%d of %d are alike at entry %d: %d keys, %d results of requests, digest %.16s", len(same[most]), len(c.Replicas), c.Index, r.Keys, r.Results, most)
	}
}

// others tells of the replicas that have another digest than most.
func (k checker) others(c *comparison, most string, same map[string][]string) {
	voices := 0
	for _, r := range c.Replicas {
		if r.State == wire.CheckDone && r.Votes && r.Digest == most {
			voices++
		}
	}
	for i := range c.Replicas {
		r := &c.Replicas[i]
		if r.State != wire.CheckDone || len(same) < 2 {
			continue
		}
		subject := fmt.Sprintf("group %d", c.Group)
		switch {
		case voices < c.majority:
			k.bad(doctor.Fail, "replica of "+doctor.OneLine(r.Node)+" in", subject, codeReplicaDiffers, "which of them is right is not known: stop the writers, keep all data directories, and report it",
				"at entry %d it has digest %.16s and %d keys, and others differ", c.Index, r.Digest, r.Keys)
		case r.Digest != most:
			k.bad(doctor.Fail, "replica of "+doctor.OneLine(r.Node)+" in", subject, codeReplicaDiffers, "stop that node before it leads the group, keep its data directory, and report it: the others are a majority without it",
				"at entry %d it has digest %.16s and %d keys, and not those of %s", c.Index, r.Digest, r.Keys, strings.Join(same[most], ", "))
		}
	}
}

// unfinished tells of a replica that has no digest.
func (k checker) unfinished(subject string, r *comparedOf) {
	name := "replica of " + doctor.OneLine(r.Node) + " in"
	switch r.State {
	case wire.CheckDone:
	case wire.CheckFailed:
		k.bad(doctor.Fail, name, subject, codeReplicaDamaged, "stop that node, check its disk, and look at its data directory: kvserver inspect", "what it has on disk has no digest: %s", doctor.OneLine(r.Why))
	case stateSilent:
		k.bad(doctor.Warn, name, subject, codeReplicaSilent, "", "it is not compared: %s", doctor.OneLine(cmp.Or(r.Why, "its node has not answered")))
	case wire.CheckBehind:
		k.bad(doctor.Warn, name, subject, codeReplicaLate, "again later, or with a longer --wait", "it is behind, and has not come to the entry of the check")
	case wire.CheckWaits, wire.CheckReads:
		k.bad(doctor.Warn, name, subject, codeReplicaLate, "with a longer --wait", "it reads what it has still")
	default: // unknown, busy
		k.bad(doctor.Warn, name, subject, codeReplicaLate, "again later", "it is not compared: %s", doctor.OneLine(cmp.Or(r.Why, "it was started, or has got a state of another replica, behind the entry of the check")))
	}
}
