package main

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
	"github.com/rdmakv/rdmakv/internal/cluster"
)

func (a *app) clusterCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "agree on the shard map of a cluster, and look at its nodes",
		Long: `cluster is for the operator of several nodes: init has them agree, once, which
node owns which shard; status shows them, check says whether all is as it
should be. Any node of the cluster can be --server; init and status need the
admin right, which the main secret has.`,
	}
	cmd.AddCommand(a.clusterInitCmd(), a.clusterStatusCmd(), a.clusterCheckCmd())
	for _, c := range []struct{ use, short string }{
		{"add NODE", "add a node to a live cluster (not yet)"},
		{"remove NODE", "take a node out of a live cluster (not yet)"},
		{"move SHARD NODE", "move a shard to another node (not yet)"},
	} {
		cmd.AddCommand(a.clusterNotYetCmd(c.use, c.short))
	}
	return cmd
}

// clusterNotYetCmd is a command that this version cannot do: the error is one line
// with the way that there is, its help has the steps.
func (a *app) clusterNotYetCmd(use, short string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + `.

Offline: stop the writers; kvserver backup on each node; start a new cluster of the
new nodes with empty data directories; kvclient export from the old one, kvclient
import into the new one.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("%w (%s --help has the steps)", cluster.ErrNotYet, cmd.CommandPath())
		},
	}
}

// An initReport is what cluster init prints.
type initReport struct {
	Name    string     `json:"name"`
	ID      string     `json:"id"`
	Version uint64     `json:"map_version"`
	Digest  string     `json:"map_digest"` // 16 hex digits
	Shards  int        `json:"shards"`
	Nodes   []initNode `json:"nodes"`
}

type initNode struct {
	ID     string `json:"id"`
	Weight uint32 `json:"weight"`
	Shards int    `json:"shards"`
}

func (a *app) clusterInitCmd() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "init NODE[:WEIGHT]...",
		Short: "agree once which node owns which shard",
		Long: `init proposes which node owns which of the shards (by weight; 1 where none is
given), has every node promise it durably, and then puts it into force on every
node. All nodes must be up and empty. What was cut short, the same command
finishes; where all is done it changes nothing. The map is then law: it never
follows from who is alive, and cannot be changed in this version. So every node
that is alive must be named; NODE:0 leaves one out, which then gets no shard.

A node that does not listen yet, or that gossip has not told of, is waited for
(--wait).`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := parseWeights(args)
			if err != nil {
				return err
			}
			deadline := time.Now().Add(wait)
			c, err := a.dialFor(cmd.Context(), max(wait, a.cfg.Timeout))
			if err != nil {
				return err
			}
			info, err := initWaiting(cmd.Context(), c, nodes, deadline)
			if closeErr := c.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				return err
			}
			return a.showInit(info)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Second, "how long to wait for nodes that are not known yet")
	return cmd
}

// parseWeights reads NODE[:WEIGHT]...
func parseWeights(args []string) (nodes []client.NodeWeight, err error) {
	seen := make(map[string]bool)
	for _, arg := range args {
		id, weight, given := strings.Cut(arg, ":")
		n := client.NodeWeight{ID: id, Weight: 1}
		if given {
			w, err := strconv.ParseUint(weight, 10, 32)
			if err != nil || w > cluster.MaxWeight {
				return nil, usagef("%q: the weight must be a number from 0 (leave it out) to %d", arg, cluster.MaxWeight)
			}
			n.Weight, n.Out = uint32(w), w == 0
		}
		if err := cluster.CheckNodeID(id); err != nil {
			return nil, usagef("%q: %w", arg, err)
		}
		if seen[id] {
			return nil, usagef("node %q is named twice", id)
		}
		seen[id] = true
		nodes = append(nodes, n)
	}
	if !slices.ContainsFunc(nodes, func(n client.NodeWeight) bool { return !n.Out }) {
		return nil, usagef("every node is left out: a weight of 1 or more gives a node shards")
	}
	return nodes, nil
}

// initWaiting tries again while gossip has not told of a node yet: clusters are
// made by scripts that have just started their nodes.
func initWaiting(ctx context.Context, c *client.Client, nodes []client.NodeWeight, deadline time.Time) (client.ClusterInfo, error) {
	for {
		info, err := c.ClusterInit(ctx, nodes)
		if err == nil || !errors.Is(err, client.ErrUnknownNode) || time.Now().After(deadline) {
			return info, err
		}
		select {
		case <-ctx.Done():
			return info, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *app) showInit(info client.ClusterInfo) error {
	r := initReport{Name: info.Name, ID: info.ID, Version: info.MapVersion, Digest: hex16(info.MapDigest), Shards: info.Shards, Nodes: []initNode{}}
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			r.Nodes = append(r.Nodes, initNode{n.ID, n.Weight, n.Shards})
		}
	}
	if a.output == "json" {
		return a.printJSON(r)
	}
	lines := []string{"node\tweight\tshards\n"}
	for _, n := range r.Nodes {
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\n", n.ID, n.Weight, n.Shards))
	}
	return a.print(fmt.Sprintf("cluster %s (%s), shard map version %d, digest %s, %d shards\n\n%s", r.Name, r.ID, r.Version, r.Digest, r.Shards, table(lines)))
}

// hex16 writes a number that a JSON number may not hold; "" for none.
func hex16(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", n)
}
