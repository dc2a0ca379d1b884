package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Codes of cluster check, beside doctor's; never renamed.
const (
	codeNoMap      = "no-map"        // kvclient cluster init has not been run
	codeUnreached  = "not-reached"   // no one-sided READ of a node
	codeOrphan     = "shard-orphan"  // a shard's owner is not reached
	codeMapDiffers = "map-differs"   // a node has another map, or none
	codeMapBehind  = "map-behind"    // a node has another version of the map
	codeViews      = "views-differ"  // gossip has not converged
	codeVersions   = "versions"      // nodes run different releases
	codeNoStatus   = "no-status"     // a node says nothing of itself
	codeTable      = "table-differs" // gossip tells of other regions or rkeys than the node has
	codeOpinion    = "gossip-opinion"
	codeConflict   = "conflict" // two processes are one node, or claim to be
)

// clusterCheckCmd is cluster check: a judgement of what cluster status shows, in
// the form and with the exit codes of doctor, so that a monitor treats both alike.
func clusterCheckCmd(a *app.App) *cobra.Command {
	var wait time.Duration
	var compare bool
	var settleFor time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "say whether the cluster is as it should be",
		Long: `check holds the nodes against each other: each is reached by a one-sided READ of
its memory, every shard belongs to a node that is reached, all have the same map,
gossip has converged on all of them, they run the same release, no two processes
are (or were, in the last ten minutes) the same node, and the regions and rkeys
that gossip tells of a node are those of a session with it.

In a cluster with replicas each group has a leader and a majority, and its replicas
are compared: all compute a digest of what they have on disk at one place of the
group's log, beside all else, at most 128 MiB a second and half of a processor. A
replica that has not come to it within --wait is a warning; one that differs is a
failure, and -o json has the digests. --compare=false leaves that out.

What mostly comes right by itself within seconds is looked at again before it is
called a failure, for --settle at most: a group that elects its leader, gossip that
has not converged, and a node that has not heard of the newest map. If anything else has failed, it is not.

Output and exit codes are those of doctor: 0 if nothing failed, else 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				st, settled, err := settle(cmd.Context(), a, c, time.Now().Add(settleFor))
				if err != nil {
					return err
				}
				report := checkReport{Report: settled}
				checkTables(cmd.Context(), st, report.Report)
				if compare {
					report.Groups = checker{report.Report}.compare(cmd.Context(), st, asking(st), wait)
				}
				if err := cmd.Context().Err(); err != nil {
					return err // what was not asked says nothing
				}
				if a.Output == "json" {
					err = a.PrintJSON(report)
				} else {
					err = a.Print(report.Text())
				}
				if err == nil && !report.Good {
					return app.ErrFailed
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&compare, "compare", true, "compare the replicas of each group, which reads all that the nodes have on disk")
	cmd.Flags().DurationVar(&settleFor, "settle", 10*time.Second, "how long what comes right by itself has for that, as an election")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long the replicas of a group have for their digests")
	return cmd
}

// A checkReport is the JSON of cluster check: a report, and the replicas that were compared.
type checkReport struct {
	*doctor.Report
	Groups []comparison `json:"groups,omitempty"` // by id
}

// A checker collects what cluster check finds.
type checker struct{ r *doctor.Report }

// ok notes that something is in order: a report that lists only faults would
// leave open what was looked at.
func (k checker) ok(name, subject, format string, args ...any) {
	k.r.Add(doctor.Step{Name: name, Subject: subject, Level: doctor.OK, Text: fmt.Sprintf(format, args...)})
}

// bad notes a fault: its code for scripts, which never changes, and what to do
// about it.
func (k checker) bad(level doctor.Level, name, subject, code, do, format string, args ...any) {
	k.r.Add(doctor.Step{Name: name, Subject: subject, Level: level, Code: code, Do: do, Text: fmt.Sprintf(format, args...)})
}

// checkCluster judges a status. It looks at nothing else, so every fault can be tested
// without a cluster that has it.
func checkCluster(st *statusReport) *doctor.Report {
	k := checker{&doctor.Report{Role: "cluster", Good: true, Steps: []doctor.Step{}}}
	// A user who asks for the health of a cluster and reaches a server without a cluster has
	// reached the wrong server.
	if !st.Clustered {
		k.bad(doctor.Fail, "cluster", "", codeNoMap, "start nodes with gossip.bind and node_id", "the server is alone, and no node of a cluster")
		return k.r
	}
	if st.Map.Version == 0 {
		k.bad(doctor.Fail, "map", "", codeNoMap, "kvclient cluster init NODE...", "there is no shard map yet: nobody owns a key")
	} else {
		k.ok("map", "", "version %d, digest %s, %d shards", st.Map.Version, st.Map.Digest, st.Map.Shards)
	}
	// A node without shards that gossip reports as gone is no fault.
	reached := make(map[string]bool)
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.ownsShards() || n.State == "alive" {
			k.reached(n)
			reached[n.ID] = n.Reached
		}
	}
	if len(st.Groups) == 0 {
		k.shards(st, reached)
	} else {
		k.r.Add(doctor.Groups(st.Groups)...)
	}
	k.maps(st)
	k.views(st)
	k.versions(st)
	k.conflicts(st)
	return k.r
}

// comes says whether a task that runs brings a node into the cluster.
func (r *statusReport) comes(id string) bool {
	return slices.ContainsFunc(r.Tasks, func(t admin.ClusterTask) bool {
		return (t.Kind == string(admin.AddNodes) || t.Kind == string(admin.ReplaceNode)) &&
			slices.ContainsFunc(t.Moves, func(m admin.ClusterMove) bool { return m.To == id })
	})
}

// settle looks at the cluster until nothing that passes by itself is called a failure any more, or until deadline.
func settle(ctx context.Context, a *app.App, c *client.Client, deadline time.Time) (*statusReport, *doctor.Report, error) {
	for {
		st, err := clusterStatus(ctx, a, c)
		if err != nil {
			return nil, nil, err
		}
		r := checkCluster(st)
		if !passing(r) || time.Now().After(deadline) {
			return st, r, nil
		}
		select {
		case <-ctx.Done():
			return st, r, nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// passing says whether something has failed, and all that has mostly comes right by itself.
func passing(r *doctor.Report) bool {
	for _, s := range r.Steps {
		if s.Level == doctor.Fail && s.Code != codeViews && s.Code != codeMapBehind && s.Code != doctor.CodeNoLeader && s.Code != doctor.CodeNoMajority {
			return false
		}
	}
	return r.Failed > 0
}

// ownsShards reports whether the map has shards for the node: then it must be there.
func (n *nodeReport) ownsShards() bool { return n.Weight > 0 }

// reached judges whether the data path leads to a node, and whether gossip agrees. The data
// path counts: clients use it, and gossip is a hint. So a node that is reached and believed
// dead is a warning, and one with shards that is not reached is a failure.
func (k checker) reached(n *nodeReport) {
	switch {
	case !n.Reached && n.ownsShards():
		k.bad(doctor.Fail, "node", n.ID, codeUnreached, "kvclient doctor "+address(n)+" names the step that fails", "no one-sided READ of it: %s; gossip believes it %s", doctor.OneLine(n.Error), n.State)
	// No keys are away with it.
	case !n.Reached:
		k.bad(doctor.Warn, "node", n.ID, codeUnreached, "", "it owns no shard, gossip believes it %s, and it is not reached: %s", n.State, doctor.OneLine(n.Error))
	// Gossip may be late, or its port closed; the data path is open.
	case !n.Agree:
		k.bad(doctor.Warn, "node", n.ID, codeOpinion, "look at its gossip port: kvclient doctor on another node", "reached by %s/%s, and gossip believes it %s", n.Fabric, n.Device, n.State)
	case n.ReadUS == 0:
		k.ok("node", n.ID, "reached by %s/%s: an answer in %.1f µs, no READ, because this session has no one-sided access; gossip believes it %s", n.Fabric, n.Device, n.SendUS, n.State)
	default:
		k.ok("node", n.ID, "reached by %s/%s: a one-sided READ in %.1f µs; gossip believes it %s", n.Fabric, n.Device, n.ReadUS, n.State)
	}
	// The checks below need the status of the node itself: without it they would pass because
	// there is nothing to compare.
	if n.Reached && n.Status == nil {
		k.bad(doctor.Fail, "status", n.ID, codeNoStatus, "with the main secret, or a tenant with the right admin", "%s", doctor.OneLine(n.StatusError))
	}
}

// address is where doctor can look at a node; a placeholder if gossip has told no
// address.
func address(n *nodeReport) string {
	if len(n.Endpoints) == 0 {
		return "HOST:PORT"
	}
	_, addr, _ := strings.Cut(n.Endpoints[0], "://")
	return addr
}

// shards: each belongs to a node that is reached. A shard's owner never changes by
// itself, so the keys of a shard whose owner is away are away with it.
func (k checker) shards(st *statusReport, reached map[string]bool) {
	// Faults are reported by owner, not by shard: a node that is away takes hundreds with it.
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

// maps: the same map is in force everywhere. A node with another one would refuse
// keys that clients send it, or serve keys that are not its own.
func (k checker) maps(st *statusReport) {
	same := 0 // among the nodes that own shards and say which map they have
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Status == nil {
			continue
		}
		m := n.Status.Map
		if !n.ownsShards() {
			// The node may have been left out on purpose, by NODE:0, or been taken out since; but it may as well have
			// been forgotten, and nothing else would tell.
			switch {
			case m.Version != 0 || n.State != "alive" || st.Map.Version == 0:
			case st.Meta != nil:
				k.bad(doctor.Warn, "map of", n.ID, codeMapDiffers, "kvclient cluster add "+n.ID+", or stop it",
					"it is alive and has no shard map: it is not in the cluster yet, and owns no shard")
			default:
				k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers,
					"stop it: this map cannot be changed. If it is to own shards and there are no keys yet: stop all nodes, give them empty data directories, and name it to kvclient cluster init, too",
					"it is alive and has no shard map: cluster init was not told of it, or has left it out, so it owns no shard, for good")
			}
			continue
		}
		if m.State == "none" {
			if st.Meta != nil && st.comes(n.ID) {
				k.bad(doctor.Warn, "map of", n.ID, codeMapBehind, "the same kvclient cluster add or replace again finishes it", "the cluster has agreed that it comes, and it has not been told the map yet")
				continue
			}
			k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers, "start it with its old data directory; until then stop no other node. With replicas the others go on without it, and kvclient cluster replace puts another node in the place of one that is lost for good",
				"the map names it, and it has none: its data directory is not the one that it had when the map was made")
			continue
		}
		// Later maps come one after the other, and each node is told of them by itself.
		if st.another(n.Status) {
			k.bad(doctor.Fail, "map of", n.ID, codeMapBehind, "look again in some seconds; if it stays so, restart the node", "it has version %d, and %s has told of version %d", m.Version, orNoneText(doctor.OneLine(st.View.Teller)), st.Map.Version)
			continue
		}
		// A map that was only promised is not in force: the node serves no client by it.
		if m.State != "committed" || m.Digest != st.Map.Digest || m.Version != st.Map.Version {
			k.bad(doctor.Fail, "map of", n.ID, codeMapDiffers, "if it is only prepared: kvclient cluster init again with the same nodes; else its data directory is of another cluster",
				"it has %s, version %d, digest %s", m.State, m.Version, orNoneText(m.Digest))
			continue
		}
		if n.Status.Shards.Owned != n.Shards {
			code := codeMapDiffers
			if st.Meta != nil { // it has the map for a moment only
				code = codeMapBehind
			}
			k.bad(doctor.Fail, "map of", n.ID, code, "", "it serves %d shards, the map gives it %d", n.Status.Shards.Owned, n.Shards)
			continue
		}
		same++
	}
	if same > 0 {
		k.ok("maps", "", "%d nodes have this one in force", same)
	}
}

// views: every node that answers knows every other one as it is. Only nodes that were asked
// are compared, because this client does not know the state of the others.
func (k checker) views(st *statusReport) {
	alike := 0 // nodes that know all others as they are
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Status == nil || n.Status.Gossip == nil {
			continue
		}
		// A node lists itself among its members, too.
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
			// Gossip would hand out rkeys of memory that is gone.
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

// conflicts: no node id has two processes. Each conflict is one step of the report, whichever
// nodes see it.
func (k checker) conflicts(st *statusReport) {
	all := st.conflicts()
	for _, c := range all {
		// Both have acknowledged writes which only they have, so a person must say which to
		// end.
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

// A conflict is one of wire.ConflictStatus, and the nodes that tell of it.
type conflict struct {
	wire.ConflictStatus
	tellers []string
}

// conflicts are those that any node reports, each with all nodes that report it. A conflict
// is over as soon as one node has seen the younger process stand down.
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

// text is the conflict in a sentence. It names a claim without a proof of the cluster's
// secret as such: any process may make one.
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

// versions are the nodes that have answered, by release.
func (r *statusReport) versions() map[string][]string {
	by := make(map[string][]string)
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Status != nil {
			by[n.Status.Version] = append(by[n.Status.Version], n.ID)
		}
	}
	return by
}

// versions: different releases are no fault, because a rolling upgrade looks like that; one
// that was not finished is worth a warning.
func (k checker) versions(st *statusReport) {
	by := st.versions()
	// Nodes that do not answer do not count: "all" are those that do.
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
