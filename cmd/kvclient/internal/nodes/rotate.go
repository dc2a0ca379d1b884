package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// adminRotateCmd is admin rotate-rkeys. In a cluster the nodes must be said,
// because each rotation registers all memory of its node anew: to do that everywhere
// at once must be meant.
func adminRotateCmd(a *app.App) *cobra.Command {
	var where target
	var noWait bool
	cmd := &cobra.Command{
		Use:   "rotate-rkeys [NODE...]",
		Short: "give every region another rkey, while clients read",
		Long: `rotate-rkeys registers each region anew, tells clients and the other nodes of the
new rkeys, and takes the old ones away once no session uses them. No get fails.
It comes back when the old rkeys are gone (or at once, with --no-wait).

In a cluster say which nodes, or --all.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			where.nodes = args
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return rotate(cmd.Context(), a, c, where, noWait) })
		},
	}
	cmd.Flags().BoolVar(&where.all, "all", false, "at all nodes")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "begin, and do not wait for the end")
	return cmd
}

// rotation is a node's answer, as far as it is looked at here.
type rotation struct {
	Running bool `json:"running"`
	Spaces  []struct {
		Space   string `json:"space"`
		Regions int    `json:"regions"`
		Renewed int    `json:"renewed"`
		Old     int    `json:"old"`
		Error   string `json:"error"`
	} `json:"spaces"`
}

// rotate begins at all nodes and then asks until each is done. If a node has begun
// and does not answer any more, it has not failed: it goes on by itself, so it is
// reported as unknown.
func rotate(ctx context.Context, a *app.App, c *client.Client, where target, noWait bool) error {
	info, err := admin.Of(c).Cluster(ctx)
	if err != nil {
		return err
	}
	if info.Clustered && !where.all && len(where.nodes) == 0 {
		return cli.Usagef("rotate-rkeys in a cluster: name nodes, or --all")
	}
	nodes, err := where.find(ctx, c)
	if err != nil {
		return err
	}
	r := ask(ctx, a, nodes, wire.AdminRotate, "start")
	// A rotation is over when no session uses the old rkeys any more, so it may
	// take as long as the slowest client. Only nodes that still rotate are asked
	// again.
	for !noWait {
		waiting := make(map[string]*admin.Node)
		for id, text := range r.Nodes {
			var state rotation
			if err := json.Unmarshal(text, &state); err != nil {
				r.Failed[id] = err.Error()
			} else if state.Running {
				waiting[id] = nodes[id]
			} else {
				// The node has ended it and could not do all of it.
				for _, s := range state.Spaces {
					if s.Error != "" {
						r.Failed[id] = fmt.Sprintf("space %s: %s", s.Space, doctor.OneLine(s.Error))
					}
				}
			}
		}
		if len(waiting) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond): // a rotation takes seconds
		}
		// "status" begins nothing: a node that has ended it meanwhile says so.
		next := ask(ctx, a, waiting, wire.AdminRotate, "status")
		maps.Copy(r.Nodes, next.Nodes)
		maps.Copy(r.Unknown, next.Failed) // it has begun; how it ends was not heard
		for id := range next.Failed {
			delete(r.Nodes, id)
		}
	}
	return showAdmin(a, r)
}
