package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Codes of cluster check, beside doctor's; never renamed.
const (
	codeNoMap      = "no-map"        // kvclient cluster init has not been run
	codeUnreached  = "not-reached"   // no one-sided READ of a node
	codeOrphan     = "shard-orphan"  // a shard's owner is not reached
	codeMapDiffers = "map-differs"   // a node has another map, or none
	codeViews      = "views-differ"  // gossip has not converged
	codeVersions   = "versions"      // nodes run different releases
	codeNoStatus   = "no-status"     // a node says nothing of itself
	codeTable      = "table-differs" // gossip tells of other regions or rkeys than the node has
	codeOpinion    = "gossip-opinion"
	codeConflict   = "conflict" // two processes are one node, or claim to be
)

func (a *app) clusterCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "say whether the cluster is as it should be",
		Long: `check holds the nodes against each other: each is reached by a one-sided READ of
its memory, every shard belongs to a node that is reached, all have the same map,
gossip has converged on all of them, they run the same release, no two processes
are (or were, in the last ten minutes) the same node, and the regions and rkeys
that gossip tells of a node are those of a session with it.

Output and exit codes are those of doctor: 0 if nothing failed, else 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				st, err := a.clusterStatus(cmd.Context(), c)
				if err != nil {
					return err
				}
				report := checkCluster(st)
				checkTables(cmd.Context(), st, report)
				if a.output == "json" {
					err = a.printJSON(report)
				} else {
					err = a.print(report.Text())
				}
				if err == nil && !report.Good {
					return errUnwell
				}
				return err
			})
		},
	}
}

// A checker collects what cluster check finds.
type checker struct{ r *doctor.Report }

func (k checker) ok(name, subject, format string, args ...any) {
	k.r.Add(doctor.Step{Name: name, Subject: subject, Level: doctor.OK, Text: fmt.Sprintf(format, args...)})
}

func (k checker) bad(level doctor.Level, name, subject, code, do, format string, args ...any) {
	k.r.Add(doctor.Step{Name: name, Subject: subject, Level: level, Code: code, Do: do, Text: fmt.Sprintf(format, args...)})
}

// checkCluster judges a status; it looks at nothing but that.
func checkCluster(st *statusReport) *doctor.Report {
	k := checker{&doctor.Report{Role: "cluster", Good: true, Steps: []doctor.Step{}}}
	if !st.Clustered {
		k.bad(doctor.Fail, "cluster", "", codeNoMap, "start nodes with gossip.bind and node_id", "the server is alone, and no node of a cluster")
		return k.r
	}
	if st.Map.Version == 0 {
		k.bad(doctor.Fail, "map", "", codeNoMap, "kvclient cluster init NODE...", "there is no shard map yet: nobody owns a key")
	} else {
		k.ok("map", "", "version %d, digest %s, %d shards", st.Map.Version, st.Map.Digest, st.Map.Shards)
	}
	reached := make(map[string]bool)
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.wanted() || n.State == "alive" {
			k.reached(n)
			reached[n.ID] = n.Reached
		}
	}
	k.shards(st, reached)
	k.maps(st)
	k.views(st)
	k.versions(st)
	k.conflicts(st)
	return k.r
}

// wanted: the map has shards for the node.
func (n *nodeReport) wanted() bool { return n.Weight > 0 }

func (k checker) reached(n *nodeReport) {
	switch {
	case !n.Reached && n.wanted():
		k.bad(doctor.Fail, "node", n.ID, codeUnreached, "kvclient doctor "+address(n)+" names the step that fails", "no one-sided READ of it: %s; gossip believes it %s", doctor.OneLine(n.Error), n.State)
	case !n.Reached:
		k.bad(doctor.Warn, "node", n.ID, codeUnreached, "", "it owns no shard, gossip believes it %s, and it is not reached: %s", n.State, doctor.OneLine(n.Error))
	case !n.Agree:
		k.bad(doctor.Warn, "node", n.ID, codeOpinion, "look at its gossip port: kvclient doctor on another node", "reached by %s/%s, and gossip believes it %s", n.Fabric, n.Device, n.State)
	case n.ReadUS == 0:
		k.ok("node", n.ID, "reached by %s/%s: an answer in %.1f µs, no READ, for this tenant has no one-sided access; gossip believes it %s", n.Fabric, n.Device, n.SendUS, n.State)
	default:
		k.ok("node", n.ID, "reached by %s/%s: a one-sided READ in %.1f µs; gossip believes it %s", n.Fabric, n.Device, n.ReadUS, n.State)
	}
	if n.Reached && n.Status == nil {
		k.bad(doctor.Fail, "status", n.ID, codeNoStatus, "with the main secret, or a tenant with the right admin", "%s", doctor.OneLine(n.StatusError))
	}
}

func address(n *nodeReport) string {
	if len(n.Endpoints) == 0 {
		return "HOST:PORT"
	}
	_, addr, _ := strings.Cut(n.Endpoints[0], "://")
	return addr
}

// shards: each belongs to somebody who is there.
func (k checker) shards(st *statusReport, reached map[string]bool) {
	orphans := make(map[string]int)
	for _, owner := range st.Map.Owners {
		if !reached[owner] {
			orphans[owner]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(orphans)) {
		k.bad(doctor.Fail, "shards", id, codeOrphan, "bring the node back: nobody else may serve its shards", "%d shards belong to it, and it is not reached", orphans[id])
	}
	if len(orphans) == 0 && st.Map.Version > 0 {
		k.ok("shards", "", "all %d belong to nodes that are reached", st.Map.Shards)
	}
}

// maps: the same one everywhere, in force.
func (k checker) maps(st *statusReport) {
	same := 0
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Status == nil {
			continue
		}
		m := n.Status.Map
		if !n.wanted() {
			if m.Version == 0 && n.State == "alive" && st.Map.Version > 0 {
				k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers,
					"stop it: a map cannot be changed yet. If it is to own shards and there are no keys yet: stop all nodes, give them empty data directories, and name it to kvclient cluster init, too",
					"it is alive and has no shard map: cluster init was not told of it, or has left it out, so it owns no shard, for good")
			}
			continue
		}
		if m.State != "committed" || m.Digest != st.Map.Digest || m.Version != st.Map.Version {
			k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers, "if it is only prepared: kvclient cluster init again with the same nodes; else its data directory is of another cluster",
				"it has %s, version %d, digest %s", m.State, m.Version, orNoneText(m.Digest))
			continue
		}
		if n.Status.Shards.Owned != n.Shards {
			k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers, "", "it serves %d shards, the map gives it %d", n.Status.Shards.Owned, n.Shards)
			continue
		}
		same++
	}
	if same > 0 {
		k.ok("maps", "", "%d nodes have this one in force", same)
	}
}

// views: every node that says something knows every other one as it is.
func (k checker) views(st *statusReport) {
	alike := 0
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		known := make(map[string]wire.MemberStatus)
		for _, m := range n.Status.Gossip.Members {
			known[m.ID] = m
		}
		var differs []string
		for j := range st.Nodes {
			o := &st.Nodes[j]
			if o.Status == nil {
				continue
			}
			switch m, there := known[o.ID]; {
			case !there:
				differs = append(differs, fmt.Sprintf("does not know %s", o.ID))
			case m.State != "alive":
				differs = append(differs, fmt.Sprintf("believes %s %s", o.ID, m.State))
			case m.Incarnation != o.Status.Incarnation:
				differs = append(differs, fmt.Sprintf("knows %s from before its last start", o.ID))
			}
		}
		if len(differs) > 0 {
			k.bad(doctor.Fail, "view of", n.ID, codeViews, "wait some seconds, then again; if it stays so, its gossip port: kvclient doctor there", "it %s", strings.Join(differs, ", "))
			continue
		}
		alike++
	}
	if alike > 0 {
		k.ok("views", "", "gossip has converged on %d nodes", alike)
	}
}

// conflicts: no node id has two processes. Each is told of once, whoever sees it.
func (k checker) conflicts(st *statusReport) {
	all := st.conflicts()
	for _, c := range all {
		do := "give one of them a node_id and a data_dir of its own; what the younger has acknowledged is in its data_dir only"
		if !c.Proved {
			do = "end it, then give the nodes another gossip key; or, if it is yours, the cluster's secret"
		}
		k.bad(doctor.Fail, "one process", doctor.OneLine(c.Node), codeConflict, do, "%s", c.text())
	}
	if len(all) == 0 {
		k.ok("one process", "", "no two processes are the same node")
	}
}

// A conflict is one of wire.ConflictStatus, and who tells of it.
type conflict struct {
	wire.ConflictStatus
	tellers []string
}

// conflicts are those that any node tells of.
func (r *statusReport) conflicts() (all []*conflict) {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		for _, c := range n.Status.Gossip.Open {
			at := slices.IndexFunc(all, func(o *conflict) bool { return o.Node == c.Node && slices.Equal(o.Addrs, c.Addrs) })
			if at < 0 {
				at = len(all)
				all = append(all, &conflict{ConflictStatus: c})
			}
			all[at].Over = all[at].Over || c.Over
			all[at].tellers = append(all[at].tellers, n.ID)
		}
	}
	return all
}

func (c *conflict) text() string {
	by := strings.Join(c.tellers, ", ")
	addrs := doctor.OneLine(strings.Join(c.Addrs, " and at "))
	switch {
	case !c.Proved:
		return fmt.Sprintf("somebody at %s claims to be this node and does not prove the cluster's secret; told by %s", addrs, by)
	case c.Over:
		return fmt.Sprintf("two processes were this node, at %s; the second, which began later, has stood down (last seen %s); told by %s", addrs, c.Last.UTC().Format(time.RFC3339), by)
	}
	return fmt.Sprintf("two processes are this node, at %s; the second began later and is to stand down (last seen %s); told by %s", addrs, c.Last.UTC().Format(time.RFC3339), by)
}

func (k checker) versions(st *statusReport) {
	by := make(map[string][]string)
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Status != nil {
			by[n.Status.Version] = append(by[n.Status.Version], n.ID)
		}
	}
	switch versions := slices.Sorted(maps.Keys(by)); len(versions) {
	case 0:
	case 1:
		k.ok("versions", "", "all are %s", versions[0])
	default:
		text := ""
		for _, v := range versions {
			text += fmt.Sprintf("; %s: %s", v, strings.Join(by[v], ", "))
		}
		k.bad(doctor.Warn, "versions", "", codeVersions, "finish the rolling upgrade", "different releases%s", text)
	}
}

// checkTables holds the regions that gossip tells of each node against those
// of the session with it: numbers by what the teller knows, rkeys by the table
// that another node has learned.
func checkTables(ctx context.Context, st *statusReport, r *doctor.Report) {
	k := checker{r}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if !n.Reached || n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		learner := otherReached(st, n.ID)
		if learner == nil {
			k.r.Add(doctor.Step{Name: "table of", Subject: n.ID, Level: doctor.Skip, Text: "no other node is reached that could have learned of it"})
			continue
		}
		k.table(ctx, n, learner)
	}
}

// tableTries is how often a table is compared, half a second apart: a region
// that has just come is not known everywhere yet.
const tableTries = 4

func (k checker) table(ctx context.Context, n, learner *nodeReport) {
	for try := 1; ; try++ {
		learned, keys, err := tables(ctx, n, learner)
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

// tables are what learner has learned of n, and the regions of the session.
func tables(ctx context.Context, n, learner *nodeReport) (*wire.TableAnswer, []client.RegionKey, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	text, err := learner.node.Admin(ctx, wire.AdminStatus, "table "+n.ID)
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
	keys, err := n.node.RegionKeys(ctx)
	return learned, keys, err
}

func otherReached(st *statusReport, id string) *nodeReport {
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.ID != id && n.Reached && n.Status != nil {
			return n
		}
	}
	return nil
}

// missingKeys lists the regions of a session that a table does not have, or not
// with this address and rkey. Whichever of the node's devices has them will do.
func missingKeys(t *wire.TableAnswer, keys []client.RegionKey) (ids []uint32) {
	have := make(map[client.RegionKey]bool)
	for _, r := range t.Regions {
		for _, key := range r.Keys {
			have[client.RegionKey{Region: r.ID, Addr: key.Addr, RKey: key.RKey}] = true
		}
	}
	for _, key := range keys {
		if !have[key] {
			ids = append(ids, key.Region)
		}
	}
	return ids
}

func orNoneText(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
