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
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// An upgrader is what cluster upgrade needs of package admin; *admin.Admin is one, and tests have others.
type upgrader interface {
	changer
	Upgrade(ctx context.Context, o admin.UpgradeOptions) (admin.UpgradePlan, error)
}

// An upgrade is cluster upgrade. Its first half gives the cluster groups, its second one is cluster replicas.
type upgrade struct {
	change
	replicas int
	zones    map[string]string
	await    func(ctx context.Context) error // returns when the groups are at work, or it waits no more
}

// clusterUpgradeCmd is cluster upgrade.
func clusterUpgradeCmd(a *app.App) *cobra.Command {
	u := &upgrade{change: change{a: a}}
	cmd := &cobra.Command{
		Use:   "upgrade [NODE@ZONE]...",
		Short: "give a cluster without replicas some, in place",
		Long: `upgrade has a cluster that was made without replicas get them, with its keys where they
are. First every node promises a shard map with groups, and then puts it into force: the
shards of each node become two groups, which are on it alone. Nothing is copied, and the
keys of a group wait for a moment while it begins. Then each group gets as many replicas
as --replicas says, on other nodes, as cluster replicas does it. Keys are read and
written meanwhile, by clients of this version; older ones are refused by such a cluster,
so upgrade them before.

Every node must be up, run a program of this release (start one after the other with it,
on its data directory), and be fit for replicas; no tenant may have one-sided access. A
node that is not is named, and nothing is changed. NODE@ZONE says what fails at once with
the node, a rack say, as in cluster init: for all nodes or for none. There is no way back,
so make a backup first (kvserver backup, at each node).

It shows what will be done and asks before it begins (--yes does not ask, --dry-run only
shows). The same command again finishes what was cut short, and says so where all is done.
Ctrl-C while it shows how far the replicas are ends the showing: the task goes on.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return u.run(cmd, args) },
	}
	cmd.Flags().IntVar(&u.replicas, "replicas", 0, "on how many nodes each key is to be: 1, 3, 5 or 7")
	cmd.Flags().BoolVarP(&u.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&u.dry, "dry-run", false, "show what would be done, and do nothing")
	cmd.Flags().BoolVar(&u.detach, "detach", false, "end when the replicas have begun to move, and print the number of the task")
	return cmd
}

// check finds what is wrong with flags and arguments before any node is asked.
func (u *upgrade) check(cmd *cobra.Command, args []string) error {
	switch n := u.replicas; {
	case !cmd.Flags().Changed("replicas"):
		return cli.Usagef("--replicas is missing: on how many nodes each key is to be, 1, 3, 5 or 7")
	case n < 1 || n > cluster.MaxReplicas || n%2 == 0:
		return cli.Usagef("--replicas %d: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", n)
	case u.dry && (u.yes || u.detach):
		return cli.Usagef("--dry-run begins nothing: --yes and --detach do not go with it")
	}
	nodes, err := parseNodes(args, false)
	if err != nil {
		return err
	}
	u.zones = make(map[string]string)
	for i, n := range nodes {
		if n.Zone == "" || n.Weight != 0 {
			return cli.Usagef("%q: NODE@ZONE is meant; which nodes there are and their weights stay as they are", args[i])
		}
		u.zones[n.ID] = n.Zone
	}
	return nil
}

func (u *upgrade) run(cmd *cobra.Command, args []string) error {
	u.name = "cluster upgrade"
	if err := u.check(cmd, args); err != nil {
		return err
	}
	if !u.dry && !u.yes {
		if err := u.a.MayAsk(u.name, "begins"); err != nil {
			return err
		}
	}
	return u.a.WithClient(cmd.Context(), func(c *client.Client) error {
		u.await = func(ctx context.Context) error { return awaitGroups(ctx, u.a, c, time.Now().Add(upgradeWait)) }
		return u.upgrade(cmd.Context(), admin.Of(c))
	})
}

// upgradeWait is for how long the groups may take until each has a leader.
const upgradeWait = 30 * time.Second

// upgrade does it at a cluster.
func (u *upgrade) upgrade(ctx context.Context, of upgrader) error {
	p, err := of.Upgrade(ctx, admin.UpgradeOptions{Zones: u.zones, Dry: true})
	if err != nil {
		return changeFailure(err)
	}
	if u.replicas > len(p.Nodes) {
		return fmt.Errorf("--replicas %d needs as many nodes, and the cluster has %d: say --replicas %d, and later kvclient cluster add NODE... and kvclient cluster replicas %d", u.replicas, len(p.Nodes), (len(p.Nodes)-1)/2*2+1, u.replicas)
	}
	info, err := of.Cluster(ctx)
	if err != nil {
		return err
	}
	if done := p.Done && info.Groups > 0 && info.Replicas == u.replicas; done || u.dry {
		return u.tell(p, done)
	}
	asked := false // about all of it
	if !p.Done {
		text := u.text(p, false)
		switch {
		case u.a.Output != "json":
			err = u.a.Print(text)
		case !u.yes:
			_, err = fmt.Fprint(u.a.Stderr, text)
		}
		if err != nil {
			return err
		}
		if !u.yes && !u.a.Confirm(ctx, "begin?") {
			return errors.New("nothing was begun")
		}
		asked = true
		if p, err = of.Upgrade(ctx, admin.UpgradeOptions{Zones: u.zones}); err != nil {
			return changeFailure(err)
		}
		if err := u.await(ctx); err != nil {
			return err
		}
	}
	if u.replicas == 1 && info.Replicas <= 1 {
		return u.tell(p, true)
	}
	next := u.change
	next.yes = next.yes || asked
	return next.do(ctx, of, admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: u.replicas}, time.Now())
}

// tell prints what is to be done, or was.
func (u *upgrade) tell(p admin.UpgradePlan, done bool) error {
	if u.a.Output == "json" {
		return u.a.PrintJSON(p)
	}
	return u.a.Print(u.text(p, done))
}

// text is the plan for people.
func (u *upgrade) text(p admin.UpgradePlan, done bool) string {
	if done {
		return fmt.Sprintf("the cluster has %d groups, each with %s: nothing is left to do\n", p.Groups, count(u.replicas, "replica", "replicas"))
	}
	var lines []string
	switch {
	case p.Done:
		lines = append(lines, fmt.Sprintf("the cluster has %d groups already", p.Groups))
	case p.Begun:
		lines = append(lines, fmt.Sprintf("an earlier run has begun this; shard map %d is put in force at every node: the shards become %d groups, where they are", p.MapVersion, p.Groups))
	default:
		lines = append(lines, fmt.Sprintf("shard map %d is put in force at every node: the shards become %d groups, where they are", p.MapVersion, p.Groups))
	}
	if u.replicas > 1 {
		lines = append(lines, fmt.Sprintf("then each group gets %s: the keys of each node are copied to %d others", count(u.replicas, "replica", "replicas"), u.replicas-1))
	}
	lines = append(lines, "clients of older versions are refused from then on, and there is no way back: make a backup first")
	rows := []string{"node\tprogram\tshards\tgroups\tmap\n"}
	for _, n := range p.Nodes {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%s\n", doctor.OneLine(n.ID), doctor.OneLine(n.Version), n.Shards, n.Groups, n.State))
	}
	return strings.Join(slices.Concat(lines, []string{"", cli.Table(rows)}), "\n")
}
