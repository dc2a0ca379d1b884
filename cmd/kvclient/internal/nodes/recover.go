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

// clusterRecoverCmd is cluster recover. Nobody is asked whether it is meant: --accept-loss says that.
func clusterRecoverCmd(a *app.App) *cobra.Command {
	var group, from string
	var accept bool
	cmd := &cobra.Command{
		Use:   "recover --group GROUP --from NODE --accept-loss",
		Short: "go on with what is left of a group that has lost its majority",
		Long: `recover is for a group of shards of whose nodes a majority is lost for good: machines
that burnt, disks that are gone. It makes a new group of what one node has of it. What
that node lacks, although a majority had it, is lost: writes that were acknowledged
among it. Without --accept-loss it says how far the node is, and changes nothing.

With --accept-loss you say that the other nodes of the group are down. Nobody can find
that out: if they are only cut off, and clients reach them, they go on with the old
group, and what they acknowledge is lost when they hear of the new one. So stop them
first. When they come back they give up what they have of the old group.

It is refused while the group has a leader or a majority that answers, if the node's
replica has no vote, has nothing yet or was stopped by an error, and if another node
that answers has more. The number of the old group is never used again, and versions
rise. The new group is on the one node until kvclient cluster remove or replace has
taken out the nodes that are lost, and kvclient cluster replicas 3 has given it others.
The same command again does no harm.

--group 0 is the meta group, which answers for the cluster. If a majority of it is lost
no other group can be recovered, so it comes first. Tasks that ran are forgotten.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := recoverRequest(group, from, accept)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return runRecover(cmd.Context(), a, admin.Of(c), r) })
		},
	}
	cmd.Flags().StringVar(&group, "group", "", "the group, by the number that kvclient cluster status shows")
	cmd.Flags().StringVar(&from, "from", "", "the node whose replica the new group is made of")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "the other nodes of the group are down for good, and what this one lacks is lost")
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

// runRecover asks for it, and says what came of it.
func runRecover(ctx context.Context, a *app.App, of recoverer, r admin.RecoverRequest) error {
	answer, err := of.Recover(ctx, r)
	if err != nil {
		return changeFailure(err)
	}
	l := answer.Loss
	if l == nil {
		return errors.New("the cluster has not said what came of it: kvclient cluster status shows that")
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
	switch {
	case !done:
		return text
	case l.Group == 0:
		return text + fmt.Sprintf("the meta group is made anew, with one replica, at node %s: recover the groups that have no leader, take out the nodes that are lost (kvclient cluster remove, or replace), then kvclient cluster rebalance\n", from)
	}
	return text + fmt.Sprintf("group %d takes its place, with one replica, at node %s: take out the nodes that are lost (kvclient cluster remove, or replace), then kvclient cluster replicas 3\n", l.Made, from)
}
