package nodes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// A recoverer is what cluster recover needs of package admin.
type recoverer interface {
	Recover(ctx context.Context, r admin.RecoverRequest) (admin.ClusterAnswer, error)
}

// A recoverReport is what cluster recover prints as JSON.
type recoverReport struct {
	MapVersion uint64             `json:"map_version"`
	Loss       *admin.ClusterLoss `json:"loss"`
	Recovered  bool               `json:"recovered"` // false: this is what would be lost
}

// clusterRecoverCmd is cluster recover. Whoever says --accept-loss is shown what will be lost before anything is done, and is asked whether he means it where he sits at a terminal; a script is not asked,
// because --accept-loss is its answer.
func clusterRecoverCmd(a *app.App) *cobra.Command {
	var group, from string
	var accept, yes bool
	cmd := &cobra.Command{
		Use:   "recover --group GROUP --from NODE --accept-loss",
		Short: "go on with what is left of a group that has lost its majority",
		Long: `recover is for a group of shards of whose nodes a majority is lost for good: machines
that burnt, disks that are gone. It makes a new group of what one node has of it. What
that node lacks, although a majority had it, is lost: writes that were acknowledged
among it. Without --accept-loss it says how far the node is, and what is lost and
forgotten, and changes nothing. With it, it says the same, and asks at a terminal
before it begins (--yes does not ask).

With --accept-loss you say that the other nodes of the group are down. Nobody can find
that out: if they are only cut off, and clients reach them, they go on with the old
group, and what they acknowledge is lost when they hear of the new one. So stop them
first. Other nodes that have a replica of the old group keep it, and do not run it, until
three replicas of the new one are there: if the node is lost before that, too, recover
the group from another one of them.

It is refused while the group has a leader or a majority that answers, if the node's
replica has no vote, has nothing yet or was stopped by an error, and if another node
that answers has more. The number of the old group is never used again, and versions
rise. The new group is on the one node until kvclient cluster remove or replace has
taken out the nodes that are lost, and kvclient cluster replicas 3 has given it others.
The same command again does no harm.

--group 0 is the meta group, which answers for the cluster. If a majority of it is lost
no other group can be recovered, so it comes first. Give the command for one node alone:
two that do not reach each other would make two meta groups. It is refused if another
node that answers has made it. Tasks that ran, and shard maps that were agreed on and
that no node which answers has in force, are forgotten.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := recoverRequest(group, from, accept)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				return runRecover(cmd.Context(), a, admin.Of(c), r, !yes && cli.IsTerminal(a.Stdin))
			})
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "the group, by the number that kvclient cluster status shows")
	cmd.Flags().StringVar(&from, "from", "", "the node whose replica the new group is made of")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "the other nodes of the group are down for good, and what this one lacks is lost")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// recoverRequest reads the flags.
func recoverRequest(group, from string, accept bool) (r admin.RecoverRequest, err error) {
	if group == "" || from == "" {
		return r, cli.Usagef("--group GROUP and --from NODE are needed: kvclient cluster status shows groups without a leader, and their nodes")
	}
	id, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		return r, cli.Usagef("%q is no group: want its number, which kvclient cluster status shows", group)
	}
	if err := cluster.CheckNodeID(from); err != nil {
		return r, badName(from, err)
	}
	return admin.RecoverRequest{Group: uint32(id), From: from, AcceptLoss: accept, Dry: !accept}, nil
}

// runRecover says what is lost, and asks the cluster to do it where the loss is accepted; asks: the user is asked before.
func runRecover(ctx context.Context, a *app.App, of recoverer, r admin.RecoverRequest, asks bool) error {
	dry := r
	dry.Dry = true
	answer, err := of.Recover(ctx, dry)
	if err != nil {
		return changeFailure(err)
	}
	l := answer.Loss
	if l == nil {
		return errors.New("the cluster has not said what came of it: kvclient cluster status shows that")
	}
	if !r.Dry && !l.Done {
		fmt.Fprint(a.Stderr, recoverText(l, false)) // before it is done
		if asks && !a.Confirm(ctx, "is that accepted?") {
			return errors.New("nothing was changed")
		}
		if answer, err = of.Recover(ctx, r); err != nil {
			return changeFailure(err)
		}
		if l = answer.Loss; l == nil {
			return errors.New("the cluster has not said what came of it: kvclient cluster status shows that")
		}
	}
	done := !r.Dry || l.Done
	if a.Output == "json" {
		err = a.PrintJSON(recoverReport{answer.MapVersion, l, done})
	} else {
		err = a.Print(recoverText(l, done))
	}
	if err == nil && !done {
		return errors.New("nothing was changed: --accept-loss says that those nodes are down for good, and that what they alone have is lost")
	}
	return err
}

// recoverText says what is lost, and what is to be done next.
func recoverText(l *admin.ClusterLoss, done bool) string {
	from := doctor.OneLine(l.From)
	if l.Done && l.Group == 0 {
		return fmt.Sprintf("the meta group was recovered before, and node %s leads it\n", from)
	}
	if l.Done {
		return fmt.Sprintf("group %d was recovered before, from node %s: it is group %d\n", l.Group, from, l.Made)
	}
	away := "no other node has a replica of it"
	if len(l.Away) > 0 {
		away = "no answer from " + doctor.OneLine(strings.Join(l.Away, ", ")) + ": what they have behind that entry is lost, acknowledged writes among it"
	}
	text := fmt.Sprintf("group %d: node %s has entries up to %d; %s\n", l.Group, from, l.Last, away)
	if l.Since != 0 {
		text += fmt.Sprintf("group %d was made of it before, and is lost: all that it has acknowledged is\n", l.Since)
	}
	for _, what := range l.Forgets {
		text += fmt.Sprintf("forgotten: %s\n", doctor.OneLine(what))
	}
	switch {
	case !done:
		return text
	case l.Group == 0:
		return text + fmt.Sprintf("the meta group is made anew, with one replica, at node %s: recover the groups that have no leader, take out the nodes that are lost (kvclient cluster remove, or replace), then kvclient cluster rebalance\n", from)
	}
	return text + fmt.Sprintf("group %d takes its place, with one replica, at node %s: take out the nodes that are lost (kvclient cluster remove, or replace), then kvclient cluster replicas 3\n", l.Made, from)
}
