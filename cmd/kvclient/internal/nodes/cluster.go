package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/backups"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// clusterCmd is cluster, with the commands of an operator below it.
func clusterCmd(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "make a cluster, change it, and look at its nodes",
		Long: `cluster is for the operator of several nodes: init has them agree which node owns
which shard; add, remove, replace, rebalance and replicas change a cluster with
replicas while it lives, and tasks shows how far that is; recover goes on with what is
left of a group that has lost its majority; status shows the nodes, check says whether
all is as it should be; backup and restore copy all keys. Any node of the cluster can be --server;
all but check need the admin right, which the main secret has.`,
	}
	cmd.AddCommand(clusterInitCmd(a), clusterStatusCmd(a), clusterCheckCmd(a))
	cmd.AddCommand(changeCmds(a)...)
	cmd.AddCommand(clusterTasksCmd(a), clusterCancelCmd(a), clusterPauseCmd(a), clusterResumeCmd(a), clusterRecoverCmd(a), clusterUpgradeCmd(a))
	cmd.AddCommand(backups.Commands(a)...)
	return cmd
}

// An initReport is what cluster init prints: the map that is in force now.
type initReport struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`
	Version uint64     `json:"map_version"`
	Digest  string     `json:"map_digest"` // 16 hex digits
	Shards  int        `json:"shards"`
	Nodes   []initNode `json:"nodes"`
	// Replicas are those of each group, Groups how many there are; 1 and 0 in a cluster without replicas.
	Replicas int `json:"replicas"`
	Groups   int `json:"groups"`
}

// An initNode is a node that got shards. Nodes that were left out (weight 0) are
// not listed.
type initNode struct {
	ID     string `json:"id"`
	Weight uint32 `json:"weight"`
	Shards int    `json:"shards"` // that it owns; with replicas, that it leads where it can
	Leads  int    `json:"leads"`  // groups, likewise; 0 without replicas
}

// clusterInitCmd is cluster init. It may be called again at any time with the same
// nodes: the library finishes a run that was cut short, and changes nothing where
// all is done.
func clusterInitCmd(a *app.App) *cobra.Command {
	var wait time.Duration
	var o admin.InitOptions
	cmd := &cobra.Command{
		Use:   "init NODE[:WEIGHT][@ZONE]...",
		Short: "agree once which node owns which shard",
		Long: `init proposes which node owns which of the shards (by weight; 1 where none is
given), has every node promise it durably, and then puts it into force on every
node. All nodes must be up and empty. What was cut short, the same command
finishes; where all is done it changes nothing. The map is then law: it never
follows from who is alive. Without replicas it never changes, with them by cluster
add and its like. So every node that is alive must be named; NODE:0 leaves one out,
which then gets no shard.

With --replicas 3 each key is on three nodes and outlives the loss of one; the
shards make up groups (--groups, two for each node), and each group
elects which of its replicas leads. The number of groups stays: take two for each node
that the cluster shall ever have, and no more, because many writes to one group cost
less than a few to each of many. NODE@ZONE says what fails at once with the node, a
rack say: replicas of a group are in different zones, as far as there are enough.
Either all nodes have a zone or none has.

With --adopt one node that has keys, as a server that was alone has them once it is
started with --node-id, begins a cluster with these keys: its shards become groups
(--groups, six), which are on it alone at first. Then cluster add and cluster replicas
bring more nodes and replicas. Nothing is copied, but each group's keys wait for a
moment while it begins. Clients of older versions are refused by such a cluster: upgrade
them before. There is no way back, so make a backup first (kvserver backup).

A node that does not listen yet, or that gossip has not told of, is waited for
(--wait), and so are the leaders of the groups, for as long again.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := parseNodes(args, true)
			if err == nil {
				err = checkReplicas(cmd, o, nodes)
			}
			if err != nil {
				return err
			}
			// There is one deadline for all waits: for the server that does not
			// listen yet, and for the nodes that it has not heard of.
			deadline := time.Now().Add(wait)
			c, err := a.DialFor(cmd.Context(), max(wait, a.Config.Timeout))
			if err != nil {
				return err
			}
			info, err := onceKnown(cmd.Context(), a, deadline, func() (admin.ClusterInfo, error) { return admin.Of(c).ClusterInitWith(cmd.Context(), nodes, o) })
			if err == nil && info.Groups > 0 {
				err = awaitGroups(cmd.Context(), a, c, time.Now().Add(wait))
			}
			if closeErr := c.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				return initFailure(err)
			}
			return showInit(a, info)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Second, "how long to wait for nodes that are not known yet")
	cmd.Flags().IntVar(&o.Replicas, "replicas", 1, "on how many nodes each key is: 1, 3, 5 or 7")
	cmd.Flags().IntVar(&o.Groups, "groups", 0, "groups of shards, with --replicas 3 and more, or --adopt; 0: two for each node (--adopt: six), or one for each shard")
	cmd.Flags().BoolVar(&o.Adopt, "adopt", false, "begin with the keys that the node has, which is the only one that is named")
	return cmd
}

// checkReplicas finds what is wrong with the flags about replicas before any node is asked.
func checkReplicas(cmd *cobra.Command, o admin.InitOptions, nodes []admin.NodeWeight) error {
	in, zoned := 0, 0
	for _, n := range nodes {
		if !n.Out {
			in++
			if n.Zone != "" {
				zoned++
			}
		}
	}
	switch {
	case o.Replicas < 1 || o.Replicas > cluster.MaxReplicas || o.Replicas%2 == 0:
		return cli.Usagef("--replicas %d: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", o.Replicas)
	case o.Adopt && (in != 1 || len(nodes) != 1):
		return cli.Usagef("--adopt takes one node, the one that has the keys: the others come by kvclient cluster add NODE..., %d are named", len(nodes))
	case o.Adopt && o.Replicas != 1:
		return cli.Usagef("--adopt begins with one replica of each group: kvclient cluster replicas %d gives it more, when other nodes have come", o.Replicas)
	case o.Replicas > in:
		return cli.Usagef("--replicas %d needs as many nodes that get shards, and %d are named", o.Replicas, in)
	case cmd.Flags().Changed("groups") && o.Replicas == 1 && !o.Adopt:
		return cli.Usagef("--groups is for clusters with replicas (--replicas 3, --adopt)")
	case o.Groups < 0 || o.Groups > cluster.MaxGroups:
		return cli.Usagef("--groups %d: 1 to %d are possible", o.Groups, cluster.MaxGroups)
	case cmd.Flags().Changed("groups") && o.Groups == 0:
		return cli.Usagef("--groups 0: 1 to %d are possible", cluster.MaxGroups)
	case zoned != 0 && o.Replicas == 1 && !o.Adopt:
		return cli.Usagef("zones (NODE@ZONE) are for clusters with replicas (--replicas 3)")
	case zoned != 0 && zoned != in:
		return cli.Usagef("%d of %d nodes have a zone: either all have one or none has, because those without would count as one zone", zoned, in)
	}
	return nil
}

// parseNodes reads NODE[:WEIGHT][@ZONE]... It finds every fault of the names before any
// node is asked. A weight that is not given is 0 for the library. Of a new cluster (init)
// weight 0 names a node in order to leave it out: every node that is alive has to be named,
// so that none is forgotten by mistake.
func parseNodes(args []string, init bool) (nodes []admin.NodeWeight, err error) {
	least, means := 1, ""
	if init {
		least, means = 0, " (leave it out)"
	}
	seen := make(map[string]bool)
	for _, arg := range args {
		rest, zone, zoned := strings.Cut(arg, "@")
		id, weight, given := strings.Cut(rest, ":")
		n := admin.NodeWeight{ID: id, Zone: zone}
		if given {
			w, err := strconv.ParseUint(weight, 10, 32)
			if err != nil || w > cluster.MaxWeight || w < uint64(least) {
				return nil, cli.Usagef("%q: the weight must be a number from %d%s to %d", arg, least, means, cluster.MaxWeight)
			}
			n.Weight, n.Out = uint32(w), w == 0
		}
		if err := cluster.CheckNodeID(id); err != nil {
			return nil, badName(arg, err)
		}
		if zoned {
			if err := cluster.CheckZone(zone); err != nil {
				return nil, badName(arg, err)
			}
		}
		// Twice with two weights would mean either of them.
		if seen[id] {
			return nil, cli.Usagef("node %q is named twice", id)
		}
		seen[id] = true
		nodes = append(nodes, n)
	}
	if init && !slices.ContainsFunc(nodes, func(n admin.NodeWeight) bool { return !n.Out }) {
		return nil, cli.Usagef("every node is left out: a weight of 1 or more gives a node shards")
	}
	return nodes, nil
}

// badName is the usage error about an argument whose node id or zone is none. That something is malformed is said of bytes from outside, and the user has typed this.
func badName(arg string, err error) error {
	return cli.Usagef("%q: %s", arg, strings.TrimPrefix(err.Error(), cluster.ErrMalformed.Error()+": "))
}

const (
	knownEvery = 200 * time.Millisecond // the rest between two tries
	knownSays  = time.Second            // it says so after this time, if it may take as much more: most nodes are known by then
)

// onceKnown does something with nodes, and does it again while that fails because gossip has not told of one of them: clusters are made and enlarged by
// scripts that have just started their nodes. No other error gets better by waiting. It says on stderr for whom it waits, once. After deadline, or when
// ctx ends, the last error stands, which names the nodes, and how long was waited.
func onceKnown[T any](ctx context.Context, a *app.App, deadline time.Time, do func() (T, error)) (T, error) {
	begun, told := time.Now(), false
	for {
		got, err := do()
		if err == nil || !errors.Is(err, client.ErrUnknownNode) {
			return got, err
		}
		now := time.Now()
		if !now.Before(deadline) {
			if waited := now.Sub(begun); waited >= knownEvery {
				err = fmt.Errorf("%w (waited for %v: --wait)", err, waited.Round(100*time.Millisecond))
			}
			return got, err
		}
		if !told && now.Sub(begun) >= knownSays && deadline.Sub(now) >= knownSays {
			told = true
			fmt.Fprintf(a.Stderr, "kvclient: waiting for %v more, at most: %s\n", deadline.Sub(now).Round(100*time.Millisecond), doctor.OneLine(err.Error()))
		}
		select {
		case <-ctx.Done():
			return got, err // the missing node, not that the user gave up
		case <-time.After(knownEvery):
		}
	}
}

// awaitGroups returns when each group has a leader, and every node that tells of its replicas has them at work; or at deadline, which is no failure
// of init: the map is in force, and a note says what is missing. Until then whoever looks at the cluster would find groups that nobody leads.
func awaitGroups(ctx context.Context, a *app.App, c *client.Client, deadline time.Time) error {
	for {
		st, err := clusterStatus(ctx, a, c)
		if err != nil {
			return err
		}
		idle := st.idle()
		if len(idle) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			_, err := fmt.Fprintf(a.Stderr, "kvclient: of %d groups %d are not at work yet, and their keys wait: kvclient cluster check says why\n", len(st.Groups), len(idle))
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// showInit prints which map is in force, also where it was in force before.
func showInit(a *app.App, info admin.ClusterInfo) error {
	r := initReport{Name: info.Name, ID: info.ID, Version: info.MapVersion, Digest: hex16(info.MapDigest), Shards: info.Shards, Nodes: []initNode{}, Replicas: info.Replicas, Groups: info.Groups}
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			r.Nodes = append(r.Nodes, initNode{n.ID, n.Weight, n.Shards, n.Leads})
		}
	}
	if a.Output == "json" {
		return a.PrintJSON(r)
	}
	return a.Print(r.text())
}

// text is the report for people. With replicas a node leads groups where it can, and owns nothing.
func (r *initReport) text() string {
	lines, replicas := []string{"node\tweight\tshards\n"}, ""
	if r.Groups > 0 {
		replicas = fmt.Sprintf("%d groups with %d replicas on %d nodes\n", r.Groups, r.Replicas, len(r.Nodes))
		lines[0] = "node\tweight\tleads groups\twith shards\n"
	}
	for _, n := range r.Nodes {
		line := fmt.Sprintf("%s\t%d", n.ID, n.Weight)
		if r.Groups > 0 {
			line += fmt.Sprintf("\t%d", n.Leads)
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\n", line, n.Shards))
	}
	return fmt.Sprintf("cluster %s (%s), shard map version %d, digest %s, %d shards\n%s\n%s", r.Name, r.ID, r.Version, r.Digest, r.Shards, replicas, cli.Table(lines))
}

// initFailure is an error of cluster init with what each node said, where several did: nodes that are not fit for replicas mostly
// are so for reasons of their own, and a *client.PartialError has the text of the first one alone.
func initFailure(err error) error {
	part := (*client.PartialError)(nil)
	if !errors.As(err, &part) || len(part.Failures) < 2 || len(client.UnreachedServers(err)) > 0 {
		return err
	}
	var all []string
	for _, f := range part.Failures {
		all = append(all, doctor.OneLine(f.Node)+": "+doctor.OneLine(f.Err.Error()))
	}
	// What stands around it stays, as that the command is to be run again.
	return &initError{strings.Replace(err.Error(), part.Error(), fmt.Sprintf("%d of %d failed: %s", len(part.Failures), part.Total, strings.Join(all, "; ")), 1), err}
}

// An initError has another text than the error that it stands for.
type initError struct {
	text string
	error
}

func (e *initError) Error() string { return e.text }

func (e *initError) Unwrap() error { return e.error }
