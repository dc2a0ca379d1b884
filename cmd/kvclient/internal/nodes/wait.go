package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
)

// waitEvery is the rest between two looks at a server that is not ready: what
// scripts wait for takes tenths of a second, and one look costs the server a
// session.
const waitEvery = 50 * time.Millisecond

// A waitReport is what wait prints with -o json, also when it gives up: then Ready
// is false, and Nodes are those that it has waited for.
type waitReport struct {
	Ready     bool     `json:"ready"`
	Clustered bool     `json:"clustered"`
	Nodes     []string `json:"nodes"` // that own shards, each reached; none where the server is alone
	Seconds   float64  `json:"seconds"`
}

// waitCmd is wait. Ready means that a get would succeed, so it READs, as a get
// does; an open port would prove less.
func waitCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "wait",
		Short: "wait until the server, or every node of the cluster, is ready",
		Long: `wait returns with exit code 0 as soon as the server answers and its memory can be
READ; in a cluster as soon as there is a shard map and that holds for every node that
owns shards. After --timeout it ends with exit code 1 and says what is missing.

  kvserver & kvclient wait && kvclient put k v`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			// --timeout bounds the whole wait here, not one call: it is what a user
			// of this command means by it.
			ctx, cancel := context.WithTimeout(cmd.Context(), a.Config.Timeout)
			defer cancel()
			report, err := waitReady(ctx, a)
			report.Seconds = time.Since(start).Seconds()
			if a.Output == "json" {
				err = errors.Join(err, a.PrintJSON(report))
			}
			switch {
			case err != nil:
				return err
			case a.Output == "json":
				return nil
			case report.Clustered:
				return a.Print(fmt.Sprintf("ready: %s\n", strings.Join(report.Nodes, ", ")))
			}
			return a.Print("ready\n")
		},
	}
}

// waitReady looks again and again until all is ready or ctx ends. The error is that
// of the last look that was not cut short.
func waitReady(ctx context.Context, a *app.App) (report waitReport, err error) {
	for {
		var now error
		if report, now = lookReady(ctx, a); now == nil {
			report.Ready = true
			return report, nil
		}
		if err == nil || ctx.Err() == nil { // a look that the end cuts short tells nothing
			err = now
		}
		// Waiting does not help against these: a wrong secret stays wrong.
		if errors.Is(now, client.ErrAuth) || errors.Is(now, client.ErrVersion) || errors.Is(now, client.ErrNoRDMA) || errors.Is(now, client.ErrConfig) {
			return report, now
		}
		select {
		case <-ctx.Done():
			return report, err
		case <-time.After(waitEvery):
		}
	}
}

// lookReady is one look, by a connection of its own: an earlier one may have
// learned something wrong of the cluster.
func lookReady(ctx context.Context, a *app.App) (report waitReport, err error) {
	report.Nodes = []string{}
	c, err := a.Dial(ctx)
	if err != nil {
		return report, err
	}
	defer c.Close()
	info, err := admin.Of(c).Cluster(ctx)
	if err != nil {
		return report, err
	}
	if report.Clustered = info.Clustered; !info.Clustered {
		only, err := admin.Of(c).Node("")
		if err != nil {
			return report, err
		}
		return report, reach(ctx, only)
	}
	// Without a map no node owns a key, so no get would succeed however many nodes
	// are up.
	if info.MapVersion == 0 {
		if _, err := admin.Of(c).NodeOf([]byte("any key")); errors.Is(err, client.ErrUnavailable) { // no node that has the map was reached
			return report, err
		}
		return report, client.ErrNoMap
	}
	// A place for each node, so that they are filled without a lock.
	errs := make([]error, len(info.Nodes))
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			report.Nodes = append(report.Nodes, n.ID)
		}
	}
	atOnce(len(report.Nodes), func(i int) {
		// A node that hangs must not take the time of those that were not asked
		// yet.
		ctx, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		node, err := admin.Of(c).Node(report.Nodes[i])
		if err == nil {
			err = reach(ctx, node)
		}
		errs[i] = err
	})
	return report, errors.Join(errs...)
}

// reach READs from a server, as gets do; a tenant without the right to READ sends a
// message instead, as its gets do.
func reach(ctx context.Context, n *admin.Node) error {
	_, err := n.PingRead(ctx)
	if errors.Is(err, client.ErrUnsupported) {
		_, err = n.Ping(ctx)
	}
	return err
}
