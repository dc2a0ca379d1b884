package nodes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// The commands that change a cluster that lives. Each goes the same way:
//
//	plan     what would be done                     --dry-run ends here
//	ask      y or N                                 --yes does not ask
//	begin    the cluster agrees on the task         --detach ends here
//	watch    until the task is over                 Ctrl-C ends the watching alone (tasks.go)

// A changer is what these commands need of package admin; *admin.Admin is one, and
// tests have others.
type changer interface {
	Cluster(ctx context.Context) (admin.ClusterInfo, error)
	Change(ctx context.Context, r admin.ChangeRequest) (admin.ClusterAnswer, error)
	Tasks(ctx context.Context) (admin.ClusterAnswer, error)
}

// A change is one of these commands.
type change struct {
	a           *app.App
	name        string // "cluster add"
	yes, detach bool
	dry         bool
	wait        time.Duration // for nodes that are not known yet
}

// howToChange is what the help of each of these commands ends with.
const howToChange = `

It shows what will be done and asks before it begins (--yes does not ask, --dry-run
only shows). Then it shows how far that is until it is over; Ctrl-C ends the showing,
and the task goes on (kvclient cluster tasks --watch, kvclient cluster cancel TASK).
Keys are read and written meanwhile. The same command again finishes what was cut
short. The exit code is 0 when the task is done, or has begun with --detach; 1 when it
was refused or canceled.

The cluster must have replicas (cluster init --replicas 3). Without them, offline: stop
the writers; start a new cluster of the new nodes; kvclient export from the old one,
kvclient import into the new one.`

// changeCmds are add, remove, replace, rebalance and replicas.
func changeCmds(a *app.App) (list []*cobra.Command) {
	for _, c := range []struct {
		use, short, long string
		comes            bool // nodes come
		request          func(args []string) (admin.ChangeRequest, error)
		suggest          []string
	}{
		{"add NODE[:WEIGHT][@ZONE]...", "add nodes to a live cluster",
			`add brings nodes into the cluster and gives them their share of the replicas, by
weight (1 where none is given) and, where nodes have zones, so that the replicas of a
group are in different ones. A node that comes is up, empty, has as many shards as the
others, and its gossip.join names a node of the cluster; one that the cluster has not heard of yet, as
it has just been started, is waited for (--wait). Name all that come at once: then each
key moves once.`, true, addRequest, []string{"join", "grow"}},
		{"remove NODE...", "take nodes out of a live cluster",
			`remove gives the replicas of nodes to the others, and takes the nodes out of the
cluster; then they can be stopped. A node that is dead may be named, too, as long as
each of its groups has a majority. There must be as many nodes left as there are
replicas of a key.`, false, removeRequest, []string{"rm", "delete", "drain"}},
		{"replace OLD NEW[:WEIGHT][@ZONE]", "have a new node take the place of another",
			`replace gives all that OLD has to NEW, and takes OLD out of the cluster: the way for a
node whose disk is lost, or whose machine goes. OLD may be dead. NEW is as for cluster
add; it gets weight and zone of OLD where none is given.`, true, replaceRequest, []string{"swap", "move"}},
		{"rebalance", "give each node its share of the replicas",
			`rebalance moves replicas until each node has its share by weight, and the replicas of
each group are in different zones, as far as there are enough.`, false, rebalanceRequest, []string{"balance"}},
		{"replicas COUNT", "change on how many nodes each key is",
			`replicas has each group have 1, 3, 5 or 7 replicas. With 3 the cluster outlives the loss
of one node, with 5 of two. An even number bears no more losses than one less.`, false, replicasRequest, nil},
	} {
		ch := &change{a: a}
		cmd := &cobra.Command{
			Use: c.use, Short: c.short, Long: c.long + howToChange, SuggestFor: c.suggest, ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, args []string) error {
				r, err := c.request(args)
				if err != nil {
					return err
				}
				return ch.run(cmd, r)
			},
		}
		if c.use == "replicas COUNT" {
			cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"1", "3", "5", "7"}, cobra.ShellCompDirectiveNoFileComp)
		}
		cmd.Flags().BoolVarP(&ch.yes, "yes", "y", false, "do not ask")
		cmd.Flags().BoolVar(&ch.dry, "dry-run", false, "show what would be done, and do nothing")
		cmd.Flags().BoolVar(&ch.detach, "detach", false, "end when the task has begun, and print its number")
		if c.comes {
			cmd.Flags().DurationVar(&ch.wait, "wait", 15*time.Second, "how long to wait for nodes that the cluster has not heard of yet")
		}
		list = append(list, cmd)
	}
	return list
}

func addRequest(args []string) (r admin.ChangeRequest, err error) {
	r.Kind = admin.AddNodes
	r.Nodes, err = parseNodes(args, false)
	return r, err
}

func removeRequest(args []string) (r admin.ChangeRequest, err error) {
	r.Kind = admin.RemoveNodes
	for _, arg := range args {
		if err := cluster.CheckNodeID(arg); err != nil {
			return r, badName(arg, err)
		}
	}
	r.Nodes, err = parseNodes(args, false)
	return r, err
}

func replaceRequest(args []string) (r admin.ChangeRequest, err error) {
	r.Kind, r.Old = admin.ReplaceNode, args[0]
	if err := cluster.CheckNodeID(r.Old); err != nil {
		return r, badName(r.Old, err)
	}
	r.Nodes, err = parseNodes(args[1:], false)
	if err == nil && r.Nodes[0].ID == r.Old {
		err = cli.Usagef("node %q cannot take its own place: give the new one another node_id", r.Old)
	}
	return r, err
}

func rebalanceRequest([]string) (admin.ChangeRequest, error) {
	return admin.ChangeRequest{Kind: admin.Rebalance}, nil
}

func replicasRequest(args []string) (admin.ChangeRequest, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > cluster.MaxReplicas || n%2 == 0 {
		return admin.ChangeRequest{}, cli.Usagef("%q replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", args[0])
	}
	return admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: n}, nil
}

// run connects and does the change. What is wrong with the flags is found before that.
func (ch *change) run(cmd *cobra.Command, r admin.ChangeRequest) error {
	ch.name = "cluster " + cmd.Name()
	switch {
	case ch.dry && (ch.yes || ch.detach):
		return cli.Usagef("--dry-run begins nothing: --yes and --detach do not go with it")
	case ch.wait < 0:
		return cli.Usagef("--wait is %v, and must not be negative", ch.wait)
	case !ch.dry && !ch.yes:
		if err := ch.a.MayAsk(ch.name, "begins"); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(ch.wait)
	c, err := ch.a.DialFor(cmd.Context(), max(ch.wait, ch.a.Config.Timeout))
	if err != nil {
		return err
	}
	err = ch.do(cmd.Context(), admin.Of(c), r, deadline)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

// do is the way of all changes; until deadline nodes that come may be unknown.
func (ch *change) do(ctx context.Context, of changer, r admin.ChangeRequest, deadline time.Time) error {
	r.Dry = true
	answer, err := onceKnown(ctx, ch.a, deadline, func() (admin.ClusterAnswer, error) { return of.Change(ctx, r) })
	if errors.Is(err, client.ErrUnsupported) {
		return fmt.Errorf("%w (kvclient %s --help has the way without that)", changeFailure(err), ch.name)
	}
	if err != nil {
		return changeFailure(err)
	}
	info, err := of.Cluster(ctx)
	if err != nil {
		return err
	}
	p := newPlan(r, info, answer)
	if ch.dry {
		return ch.show(p)
	}
	if p.idle() {
		return ch.show(p)
	}
	switch {
	case ch.a.Output != "json":
		if err := ch.a.Print(p.text()); err != nil {
			return err
		}
	case !ch.yes: // who is asked sees what about, and a program that reads the output does not
		fmt.Fprint(ch.a.Stderr, p.text())
	}
	if !ch.yes && p.asks() && !ch.a.Confirm(ctx, "begin?") {
		return errors.New("nothing was begun")
	}
	r.Dry = false
	if answer, err = of.Change(ctx, r); err != nil {
		return changeFailure(err)
	}
	w := watcher{a: ch.a, of: of, every: lookEvery}
	if !ch.detach && !over(answer.Task) {
		return w.until(ctx, answer.Task)
	}
	return w.told(answer, answer.Task, false)
}

// show prints a plan alone.
func (ch *change) show(p *plan) error {
	if ch.a.Output == "json" {
		return ch.a.PrintJSON(p)
	}
	return ch.a.Print(p.text())
}

// changeFailure is an error of a change in one line, what is in the way first.
func changeFailure(err error) error {
	err = initFailure(err)
	if errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, admin.ErrRefused) {
		return err
	}
	// The cluster, or the node that should come, has answered: which call that was, and at which address, is of no use.
	e, part := (*client.Error)(nil), (*client.PartialError)(nil)
	switch {
	case errors.As(err, &part) && len(part.Failures) == 1:
		return &initError{doctor.OneLine(part.Failures[0].Err.Error()), err}
	case errors.As(err, &e) && part == nil:
		return &initError{doctor.OneLine(e.Err.Error()), err}
	}
	return err
}

// clusterCancelCmd is cluster cancel.
func clusterCancelCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel TASK",
		Short: "have a task end before it is done",
		Long: `cancel ends a task, by the number that cluster tasks shows. Moves that have not begun
never do; those that have begun are undone, or finished where it is too late for that,
so the task may take a while to end (cluster tasks --watch). What was moved before
stays where it is. A task that is done stays done, and the exit code is 1.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return cli.Usagef("%q is no task: want its number, which kvclient cluster tasks shows", args[0])
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				answer, err := admin.Of(c).Cancel(cmd.Context(), id)
				if err != nil {
					return changeFailure(err)
				}
				if t := answer.Task; t.State == "done" {
					return fmt.Errorf("%s was done before, and what is done is not canceled", taskName(t))
				}
				return watcher{a: a}.told(answer, answer.Task, true)
			})
		},
	}
}

// clusterPauseCmd is cluster pause.
func clusterPauseCmd(a *app.App) *cobra.Command {
	return pauseCmd(a, "pause", "let no further move begin",
		"pause lets no further move of any task begin, until cluster resume, also over restarts.\nMoves that have begun go on: a group is never left half moved.",
		"no further move begins; kvclient cluster resume takes that back", (*admin.Admin).Pause)
}

// clusterResumeCmd is cluster resume.
func clusterResumeCmd(a *app.App) *cobra.Command {
	return pauseCmd(a, "resume", "let moves begin again", "resume takes cluster pause back.", "moves begin again", (*admin.Admin).Resume)
}

func pauseCmd(a *app.App, use, short, long, done string, do func(*admin.Admin, context.Context) (admin.ClusterAnswer, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				answer, err := do(admin.Of(c), cmd.Context())
				if err != nil {
					return changeFailure(err)
				}
				if a.Output == "json" {
					return a.PrintJSON(newTasksReport(answer))
				}
				return a.Print(fmt.Sprintf("%s\n", done))
			})
		},
	}
}
