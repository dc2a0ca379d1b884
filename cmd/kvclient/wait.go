package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

// waitEvery is the rest between two looks at a server that is not ready.
const waitEvery = 50 * time.Millisecond

// A waitReport is what wait prints.
type waitReport struct {
	Ready     bool     `json:"ready"`
	Clustered bool     `json:"clustered"`
	Nodes     []string `json:"nodes"` // that own shards, each reached; none where the server is alone
	Seconds   float64  `json:"seconds"`
}

func (a *app) waitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "wait",
		Short: "wait until the server, or every node of the cluster, is ready",
		Long: `wait returns with exit code 0 as soon as the server answers and its memory can be
READ; in a cluster as soon as there is a shard map and that holds for every node that
owns shards. After --timeout it ends with exit code 1 and says what is missing.

  kvserver & kvclient wait && kvclient put k v`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			ctx, cancel := context.WithTimeout(cmd.Context(), a.cfg.Timeout)
			defer cancel()
			report, err := a.waitReady(ctx)
			report.Seconds = time.Since(start).Seconds()
			if a.output == "json" {
				err = errors.Join(err, a.printJSON(report))
			}
			switch {
			case err != nil:
				return err
			case a.output == "json":
				return nil
			case report.Clustered:
				return a.print(fmt.Sprintf("ready: %s\n", strings.Join(report.Nodes, ", ")))
			}
			return a.print("ready\n")
		},
	}
}

// waitReady looks again and again until all is ready or ctx ends. The error is of
// the last look that told anything.
func (a *app) waitReady(ctx context.Context) (report waitReport, err error) {
	for {
		var now error
		if report, now = a.lookReady(ctx); now == nil {
			report.Ready = true
			return report, nil
		}
		if err == nil || ctx.Err() == nil { // what the end cuts short tells nothing
			err = now
		}
		// What no time heals.
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

// lookReady is one look.
func (a *app) lookReady(ctx context.Context) (report waitReport, err error) {
	report.Nodes = []string{}
	c, err := a.dial(ctx)
	if err != nil {
		return report, err
	}
	defer c.Close()
	info, err := c.Cluster(ctx)
	if err != nil {
		return report, err
	}
	if report.Clustered = info.Clustered; !info.Clustered {
		return report, reach(ctx, c)
	}
	if info.MapVersion == 0 {
		if _, err := c.NodeOf([]byte("any key")); errors.Is(err, client.ErrUnavailable) { // who has it was not reached
			return report, err
		}
		return report, client.ErrNoMap
	}
	errs := make([]error, len(info.Nodes))
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			report.Nodes = append(report.Nodes, n.ID)
		}
	}
	atOnce(len(report.Nodes), func(i int) {
		// A node that hangs must not take the time of those that were not asked yet.
		ctx, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		node, err := c.Node(report.Nodes[i])
		if err == nil {
			err = reach(ctx, node)
		}
		errs[i] = err
	})
	return report, errors.Join(errs...)
}

// A pinger is a Client or one of its Nodes.
type pinger interface {
	Ping(context.Context) (time.Duration, error)
	PingRead(context.Context) (time.Duration, error)
}

// reach READs from a server, as gets do; without the right to READ it asks.
func reach(ctx context.Context, p pinger) error {
	_, err := p.PingRead(ctx)
	if errors.Is(err, client.ErrUnsupported) {
		_, err = p.Ping(ctx)
	}
	return err
}
