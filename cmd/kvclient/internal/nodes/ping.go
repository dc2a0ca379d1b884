package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// maxPings bounds --count: all round trips are kept for the percentiles.
const maxPings = 1_000_000

// pingCmd is ping: how the store is reached, and what one round trip costs on that
// way. It is the first thing to look at when gets are slow, because it shows
// whether RDMA is used at all.
func pingCmd(a *app.App) *cobra.Command {
	var count int
	var node string
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "show how the server is reached, and measure the way there",
		Long: `ping tells which fabric and device the connection uses, and why, and measures
two round trips: a one-sided READ of the server's memory, in which the server's
CPU takes no part, and a message that the server answers. In a cluster it does so
for every node that owns keys, one after the other.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || count > maxPings {
				return cli.Usagef("--count is %d, want 1 to %d", count, maxPings)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				return runPing(cmd.Context(), a, c, node, count)
			})
		},
	}
	nodeFlag(cmd, &node)
	cmd.Flags().IntVarP(&count, "count", "c", 100, "how often, each way")
	return cmd
}

// runPing measures the way to one server, or to each node in turn: side by side the
// measurements would disturb each other. A node that fails does not end it.
func runPing(ctx context.Context, a *app.App, c *client.Client, node string, count int) error {
	nodes := admin.Of(c).Nodes()
	if node != "" {
		n, err := admin.Of(c).Node(node)
		if err != nil {
			return err
		}
		nodes = []*admin.Node{n}
	}
	if len(nodes) == 0 { // no map yet: this waits for one, and knows why there is none
		_, err := c.Ping(ctx)
		if nodes = admin.Of(c).Nodes(); len(nodes) == 0 {
			return err
		}
	}
	// One server is one object in JSON, without a map around it.
	if len(nodes) == 1 {
		r, err := measurePing(ctx, nodes[0], count)
		if err != nil {
			return err
		}
		if a.Output == "json" {
			return a.PrintJSON(r)
		}
		return a.Print(r.String())
	}
	all := map[string]pingReport{}
	var errs []error
	for _, n := range nodes {
		r, err := measurePing(ctx, n, count)
		if err != nil {
			r.Fault = a.Explain(err) // in the report as well: a script reads no standard error
			errs = append(errs, err)
		}
		if all[n.ID()] = r; a.Output == "text" && err == nil {
			if err := a.Print(r.String() + "\n"); err != nil {
				return err
			}
		}
	}
	if a.Output == "json" {
		errs = append(errs, a.PrintJSON(map[string]any{"nodes": all}))
	}
	return errors.Join(errs...)
}

// A pingReport is what ping prints of one server.
type pingReport struct {
	Fault   string           `json:"fault,omitempty"` // why there is nothing below
	Session admin.ServerInfo `json:"session"`
	Read    roundTrips       `json:"read"` // one-sided READs of the beat
	Send    roundTrips       `json:"send"` // messages that the server answers
}

// roundTrips sums up some measurements of one kind, in microseconds. Count is 0
// where the kind could not be measured.
type roundTrips struct {
	Count int `json:"count"`
	Times struct {
		Min float64 `json:"min"`
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
		Max float64 `json:"max"`
	} `json:"us"` // microseconds
}

// measurePing takes both measures in turn, so that load on the machine disturbs
// both alike, and their difference stays what it is: what the server's CPU costs.
func measurePing(ctx context.Context, c *admin.Node, count int) (r pingReport, err error) {
	reads, sends := make([]time.Duration, count), make([]time.Duration, count)
	// The first of each pays for what is made once.
	_, err = c.PingRead(ctx)
	if errors.Is(err, client.ErrUnsupported) { // a tenant without one-sided access
		reads, err = nil, nil
	}
	if err == nil {
		_, err = c.Ping(ctx)
	}
	if err != nil {
		return r, err
	}
	// An error ends it: percentiles of the round trips until then would look better
	// than the way is.
	for i := range count {
		if reads != nil {
			if reads[i], err = c.PingRead(ctx); err != nil {
				return r, err
			}
		}
		if sends[i], err = c.Ping(ctx); err != nil {
			return r, err
		}
	}
	return pingReport{Session: c.Server(), Read: sumUp(reads), Send: sumUp(sends)}, nil
}

// sumUp makes percentiles of some round trips. It sorts took.
func sumUp(took []time.Duration) (r roundTrips) {
	if len(took) == 0 {
		return r
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	r.Count = len(took) // each, and not a sample: maxPings bounds them
	r.Times.Min, r.Times.P50, r.Times.P99, r.Times.Max = at(0), at(0.5), at(0.99), at(1)
	return r
}

// String is the report for people. Rows about which the fabric says nothing are
// left out.
func (r pingReport) String() string {
	s := r.Session
	// A cell that is empty on this fabric would be taken for something that is
	// missing.
	lines := []string{fmt.Sprintf("server\t%s, name %s\n", s.Address, s.ID)}
	if s.Node != "" {
		lines = append([]string{fmt.Sprintf("node\t%s\n", s.Node)}, lines...)
	}
	row := func(name, format string, args ...any) {
		lines = append(lines, name+"\t"+fmt.Sprintf(format, args...)+"\n")
	}
	fabric := s.Fabric
	if s.Software {
		fabric += " (in software)"
	}
	row("fabric", "%s", fabric)
	device := s.Device
	if s.Port != 0 {
		device += fmt.Sprintf(", port %d", s.Port)
	}
	row("device", "%s", device)
	if s.GID != "" {
		row("GID", "%s (%s)", s.GID, strings.TrimPrefix(fmt.Sprintf("%s, index %d", s.GIDType, s.GIDIndex), ", "))
	}
	if s.PeerGID != "" {
		row("peer GID", "%s", s.PeerGID)
	}
	if s.LID != 0 {
		row("peer LID", "%d", s.LID)
	}
	if s.MTU != 0 {
		row("MTU", "%d", s.MTU)
	}
	if s.Transport != "" {
		row("transport", "%s", s.Transport)
	}
	if s.Why != "" {
		row("why", "%s", s.Why)
	}
	for _, sk := range s.Skipped {
		row("not "+sk.Fabric, "%s", sk.Reason)
	}
	if s.LeaseOff {
		row("lease", "off: reads are believed for as long as the device answers")
	}
	text := cli.Table(lines) + "\n"
	return text + cli.Table([]string{
		"µs\tmin\tp50\tp99\tmax\n",
		r.Read.row(fmt.Sprintf("READ of %d B, one-sided", layout.BeatSize)),
		r.Send.row("SEND and reply"),
	})
}

// row is one kind of round trip as a line of the table.
func (r roundTrips) row(name string) string {
	t := &r.Times
	if r.Count == 0 {
		return name + "\t-\t-\t-\t- (this tenant has no one-sided access)\n"
	}
	return fmt.Sprintf("%s (%d)\t%.1f\t%.1f\t%.1f\t%.1f\n", name, r.Count, t.Min, t.P50, t.P99, t.Max)
}
